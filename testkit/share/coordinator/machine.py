"""The state machine of the search for a wrong share state."""

from __future__ import annotations

from collections import Counter

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kwire_protocol.errors import ErrorCode as E

from kwire.share.coordinator.config import ShareStateConfig
from kwire.share.coordinator.records import Snapshot, Update, read_record
from kwire.share.coordinator.shard import ShareStateShard
from kwire.share.coordinator.state import SharePartitionKey, StoredState
from testkit.share.coordinator.shard_driver import OTHER_ID, PARTITIONS, TOPIC_ID, ShardDriver
from testkit.share.coordinator.spreading import Offsets, assert_is_normal, spread

COLD_MS, PRUNE_MS = 1_000, 700


KEYS = (
    SharePartitionKey("g", TOPIC_ID, 0),
    SharePartitionKey("g", TOPIC_ID, 1),
    SharePartitionKey("h", TOPIC_ID, 0),
    SharePartitionKey("g", OTHER_ID, 0),
)


keys = st.sampled_from(KEYS)


epochs = st.sampled_from([-1] * 7 + [-2, 0, 1, 2, 3, 4])
"""Mostly such that nothing is fenced, or the rest would not be seen."""


offsets = st.integers(0, 20)


start_offsets = st.sampled_from([-1]) | offsets


batches = st.lists(st.tuples(offsets, offsets, st.sampled_from([0, 2, 4]), st.integers(1, 3)), max_size=4)


errors = st.sampled_from([E.NONE] * 12 + [E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS])


ANSWERS = {
    E.NONE: E.NONE,
    E.NOT_LEADER_OR_FOLLOWER: E.NOT_COORDINATOR,
    E.NOT_ENOUGH_REPLICAS: E.COORDINATOR_NOT_AVAILABLE,
}


@attrs.define
class Expected:
    """A share-partition."""

    state_epoch: int
    start_offset: int
    complete: int
    leader_epoch: int = 0
    highest_leader_epoch: int = 0
    highest_state_epoch: int = -9
    offsets: Offsets = attrs.field(factory=dict)

    def fenced(self, *, leader_epoch: int = -1, state_epoch: int = -1) -> E:
        if leader_epoch != -1 and leader_epoch < self.highest_leader_epoch:
            return E.FENCED_LEADER_EPOCH
        if state_epoch != -1 and state_epoch < self.highest_state_epoch:
            return E.FENCED_STATE_EPOCH
        return E.NONE


class ShareStateMachine(RuleBasedStateMachine):
    @initialize(updates=st.integers(0, 3), begun=st.sets(keys))
    def begin(self, updates: int, begun: set[SharePartitionKey]) -> None:
        self.updates = updates
        self.driver = ShardDriver(ShareStateConfig(updates, COLD_MS, PRUNE_MS))
        self.expected: dict[SharePartitionKey, Expected] = {}
        for key in sorted(begun):
            self.initializes(key, 0, 0, E.NONE)

    def fails(self, error: E) -> None:
        """The next append does, if there is one."""
        self.driver.append_error = error

    # Requests

    @rule(key=keys, state_epoch=epochs, start_offset=start_offsets, error=errors)
    def initializes(self, key: SharePartitionKey, state_epoch: int, start_offset: int, error: E) -> None:
        before = self.expected.get(key)
        refusal = E.NONE if before is None else before.fenced(state_epoch=state_epoch)
        if refusal is E.NONE and key.topic_id not in self.driver.topics:
            refusal = E.UNKNOWN_TOPIC_OR_PARTITION
        self.fails(error)
        answer = self.driver.initialize(key, state_epoch=state_epoch, start_offset=start_offset)
        assert answer is (refusal or ANSWERS[error])
        if refusal is E.NONE and error is E.NONE:
            new = Expected(state_epoch, start_offset, 0 if start_offset != -1 else -1, highest_state_epoch=state_epoch)
            if before is not None:
                new.highest_leader_epoch = before.highest_leader_epoch
                new.highest_state_epoch = max(before.highest_state_epoch, state_epoch)
            self.expected[key] = new
        self.driver.append_error = E.NONE

    @rule(key=keys, leader_epoch=epochs, error=errors)
    def reads(self, key: SharePartitionKey, leader_epoch: int, error: E) -> None:
        expected = self.expected.get(key)
        refusal = E.INVALID_REQUEST if expected is None else expected.fenced(leader_epoch=leader_epoch)
        if refusal is E.NONE and key.topic_id not in self.driver.topics:
            refusal = E.UNKNOWN_TOPIC_OR_PARTITION
        is_new = expected is not None and leader_epoch not in (-1, expected.highest_leader_epoch)
        self.fails(error)
        result = self.driver.read(key, leader_epoch)
        self.driver.append_error = E.NONE
        assert result.error_code == (refusal or (ANSWERS[error] if is_new else E.NONE))
        if result.error_code == E.NONE:
            assert expected is not None
            assert (result.state_epoch, result.start_offset) == (expected.state_epoch, expected.start_offset)
            if is_new:
                expected.leader_epoch = leader_epoch
                expected.highest_leader_epoch = max(expected.highest_leader_epoch, leader_epoch)

    @rule(
        key=keys,
        written=batches,
        leader_epoch=epochs,
        state_epoch=epochs,
        start_offset=start_offsets,
        complete=st.integers(-1, 9),
        error=errors,
    )
    def writes(
        self,
        key: SharePartitionKey,
        written: list[tuple[int, int, int, int]],
        leader_epoch: int,
        state_epoch: int,
        start_offset: int,
        complete: int,
        error: E,
    ) -> None:
        expected = self.expected.get(key)
        refusal = (
            E.INVALID_REQUEST
            if expected is None
            else expected.fenced(leader_epoch=leader_epoch, state_epoch=state_epoch)
        )
        if refusal is E.NONE and key.topic_id not in self.driver.topics:
            refusal = E.UNKNOWN_TOPIC_OR_PARTITION
        self.fails(error)
        answer = self.driver.write(
            *written,
            key=key,
            leader_epoch=leader_epoch,
            state_epoch=state_epoch,
            start_offset=start_offset,
            complete=complete,
        )
        self.driver.append_error = E.NONE
        assert answer is (refusal or ANSWERS[error])
        if answer is not E.NONE:
            return
        assert expected is not None
        for first, last, delivery_state, count in written:
            for offset in range(first, last + 1):
                expected.offsets[offset] = max(expected.offsets.get(offset, (0, 0)), (count, delivery_state))
        if start_offset != -1:
            expected.start_offset = start_offset
        if expected.start_offset != -1:
            for offset in [offset for offset in expected.offsets if offset < expected.start_offset]:
                del expected.offsets[offset]
        expected.complete = complete

    @rule(key=keys, error=errors)
    def deletes(self, key: SharePartitionKey, error: E) -> None:
        is_known = key.topic_id in self.driver.topics
        self.fails(error)
        answer = self.driver.delete(key)
        self.driver.append_error = E.NONE
        if not is_known:
            assert answer is E.UNKNOWN_TOPIC_OR_PARTITION
        elif key in self.expected:
            assert answer is ANSWERS[error]
            if answer is E.NONE:
                del self.expected[key]
        else:
            assert answer is E.NONE

    @rule(key=keys)
    def summarizes(self, key: SharePartitionKey) -> None:
        result = self.driver.summary(key)
        if key.topic_id not in self.driver.topics:
            assert result.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
            return
        expected = self.expected.get(key, Expected(0, -1, -1))
        assert (result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count) == (
            expected.state_epoch,
            expected.leader_epoch,
            expected.start_offset,
            expected.complete,
        )

    # The world

    @rule(by_ms=st.sampled_from([1, 300, 700, 1_000, 2_500]), prune_fails=st.booleans())
    def time_passes(self, by_ms: int, prune_fails: bool) -> None:
        self.driver.prune_fails = prune_fails
        self.driver.advance(by_ms)
        self.driver.prune_fails = False

    @rule()
    def nothing_happens_for_long(self) -> None:
        """Checks that unneeded states are deleted, and that the coordinator then does nothing more."""
        self.driver.advance(3 * max(COLD_MS, PRUNE_MS))
        for key in [key for key in self.expected if key.topic_id not in self.driver.topics]:
            del self.expected[key]
        assert self.driver.shard.next_deadline_ms() is None
        assert self.driver.log_start == self.needed_from()
        for state in self.states(self.driver.shard).values():
            assert state.written_ms > state.created_ms, "it was not recorded again"

    def needed_from(self) -> int:
        """Returns the lowest needed offset of the log: the oldest of the last snapshots, or the last tombstone."""
        last: dict[SharePartitionKey, int] = {}
        tombstone = 0
        for offset, record in enumerate(self.driver.history):
            change = read_record(*record)
            if isinstance(change, Snapshot) and change.state is not None:
                last[change.key] = offset
            elif isinstance(change, Snapshot):
                del last[change.key]
                tombstone = offset
        return min(last.values(), default=tombstone)

    @rule()
    def another_coordinator_takes_over(self) -> None:
        self.driver.restart()
        for key, entry in self.driver.shard._entries.items():
            # What was in deleted records only is forgotten, as in Kafka.
            expected = self.expected[key]
            assert entry.leader_epoch <= expected.highest_leader_epoch
            assert entry.state_epoch <= expected.highest_state_epoch
            if self.driver.log_start == 0:
                assert entry.leader_epoch == expected.highest_leader_epoch
                assert entry.state_epoch == expected.highest_state_epoch
            expected.highest_leader_epoch, expected.highest_state_epoch = entry.leader_epoch, entry.state_epoch

    @rule(seen=st.booleans(), error=errors)
    def a_topic_is_deleted(self, seen: bool, error: E) -> None:
        if OTHER_ID not in self.driver.topics:
            self.driver.topics[OTHER_ID] = PARTITIONS  # a test has few ids
            return
        if seen:
            self.fails(error)
            self.driver.forget_topic(OTHER_ID)
            if error is E.NONE:
                self.expected = {key: it for key, it in self.expected.items() if key.topic_id != OTHER_ID}
            self.driver.append_error = E.NONE
        else:
            del self.driver.topics[OTHER_ID]
            self.another_coordinator_takes_over()

    # What always holds

    @staticmethod
    def states(shard: ShareStateShard) -> dict[SharePartitionKey, StoredState]:
        return {key: entry.state for key, entry in shard._entries.items()}

    def _is_there(self, key: SharePartitionKey) -> bool:
        """A state of a topic that has gone unseen is deleted some time."""
        return key.topic_id in self.driver.topics or key in self.driver.shard._entries

    @invariant()
    def the_states_are_those_of_the_model(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.expected = {key: it for key, it in self.expected.items() if self._is_there(key)}
        states = self.states(self.driver.shard)
        assert states.keys() == self.expected.keys()
        for key, state in states.items():
            expected = self.expected[key]
            assert_is_normal(state.batches)
            assert spread(state.batches) == expected.offsets
            assert (state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count) == (
                expected.state_epoch,
                expected.leader_epoch,
                expected.start_offset,
                expected.complete,
            )

    @invariant()
    def a_replay_yields_the_same_states(self) -> None:
        if not hasattr(self, "driver"):
            return
        replayed, live = self.driver.replayed()._entries, self.driver.shard._entries
        assert replayed.keys() == live.keys()
        updates: Counter[SharePartitionKey] = Counter()
        """The number of updates since each one's last snapshot."""
        for change in self.driver.changes():
            updates[change.key] = updates[change.key] + 1 if isinstance(change, Update) else 0
        for key, entry in live.items():
            assert entry.updates == updates[key] <= self.updates
            there = replayed[key]
            assert (there.state, there.updates, there.snapshot_offset) == (
                entry.state,
                entry.updates,
                entry.snapshot_offset,
            )
            if self.driver.log_start == 0:
                assert there == entry
