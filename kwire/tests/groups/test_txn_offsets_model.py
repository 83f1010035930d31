"""Offsets inside and outside of transactions against a model that compares positions in the log, as Kafka does.

The shard has no positions. The model also compacts the log, after which a replay must give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kwire_protocol.errors import ErrorCode

from devtools.suite.tiers import examples
from kwire.coordinators.internal_topic import EndedTransaction, LoggedRecord
from kwire.groups.offsets.records import read_offset
from kwire.groups.shard import GroupShard
from testkit.groups.shard_driver import ShardDriver

GROUPS = ("g", "h")
PLACES = tuple((group, "t", 0) for group in GROUPS)
PRODUCERS = (1, 2)
"""Few of both, so that they meet."""

Place = tuple[str, str, int]

places = st.sampled_from(PLACES)
producers = st.sampled_from(PRODUCERS)


@attrs.frozen
class At:
    """An offset, and where in the log it was committed."""

    position: int
    offset: int


class Model:
    """Kafka's rules in Kafka's words: of committed offsets the record with the highest position counts."""

    def __init__(self) -> None:
        self.committed: dict[Place, At] = {}
        self.pending: dict[int, dict[Place, At]] = {}

    def copy(self) -> Model:
        copied = Model()
        copied.committed = dict(self.committed)
        copied.pending = {producer_id: dict(pending) for producer_id, pending in self.pending.items()}
        return copied

    def commit(self, place: Place, at: At) -> None:
        self.committed[place] = at

    def commit_in(self, producer_id: int, place: Place, at: At) -> None:
        self.pending.setdefault(producer_id, {})[place] = at

    def remove(self, place: Place) -> None:
        self.committed.pop(place, None)
        for pending in self.pending.values():
            pending.pop(place, None)

    def end(self, producer_id: int, *, committed: bool) -> None:
        for place, at in self.pending.pop(producer_id, {}).items():
            if committed and (place not in self.committed or at.position > self.committed[place].position):
                self.committed[place] = at

    def seen(self) -> dict[Place, int | ErrorCode]:
        unstable = {place for pending in self.pending.values() for place in pending}
        return {
            place: ErrorCode.UNSTABLE_OFFSET_COMMIT
            if place in unstable
            else self.committed[place].offset
            if place in self.committed
            else -1
            for place in PLACES
        }


def compacted(log: Sequence[LoggedRecord | EndedTransaction]) -> list[LoggedRecord | EndedTransaction]:
    """Compacts as Kafka's cleaner: of each key the last record, up to the first open transaction; none aborted."""
    aborted: set[int] = set()
    began: dict[int, list[int]] = {}
    for at, logged in enumerate(log):
        if isinstance(logged, EndedTransaction):
            positions = began.pop(logged.producer_id, [])
            if not logged.committed:
                aborted.update(positions)
        elif logged.producer_id >= 0:
            began.setdefault(logged.producer_id, []).append(at)
    end = min((positions[0] for positions in began.values()), default=len(log))
    last = {
        logged.key: at for at, logged in enumerate(log[:end]) if isinstance(logged, LoggedRecord) and at not in aborted
    }
    return [
        logged
        for at, logged in enumerate(log)
        if at >= end or isinstance(logged, EndedTransaction) or last.get(logged.key) == at
    ]


class OffsetsMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.driver = ShardDriver()
        self.model = Model()
        self.offset = 0

    def next_offset(self) -> At:
        self.offset += 1
        return At(len(self.driver.log), self.offset)

    @rule(place=places)
    def commit(self, place: Place) -> None:
        at = self.next_offset()
        group, topic, partition = place
        assert self.driver.commit({(topic, partition): at.offset}, group=group) == [ErrorCode.NONE]
        self.model.commit(place, at)

    @rule(place=places, producer_id=producers)
    def commit_in_a_transaction(self, place: Place, producer_id: int) -> None:
        at = self.next_offset()
        group, topic, partition = place
        answer = self.driver.commit_transactional({(topic, partition): at.offset}, group=group, producer_id=producer_id)
        assert answer == [ErrorCode.NONE]
        self.model.commit_in(producer_id, place, at)

    @rule(place=places, producer_id=producers)
    def the_log_refuses(self, place: Place, producer_id: int) -> None:
        group, topic, partition = place
        self.driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
        self.driver.commit_transactional({(topic, partition): 0}, group=group, producer_id=producer_id)
        self.driver.append_error = ErrorCode.NONE

    @rule(producer_id=producers, committed=st.booleans())
    def a_transaction_ends(self, producer_id: int, committed: bool) -> None:
        self.driver.end_transaction(producer_id, committed=committed)
        self.model.end(producer_id, committed=committed)

    @rule(place=places)
    def an_offset_is_deleted(self, place: Place) -> None:
        group, topic, partition = place
        if group in self.driver.groups:
            self.driver.delete_offsets((topic, partition), group=group)
            self.model.remove(place)

    @rule(group=st.sampled_from(GROUPS))
    def a_group_is_deleted(self, group: str) -> None:
        self.driver.delete_groups(group)
        for place in PLACES:
            if place[0] == group:
                self.model.remove(place)

    @rule()
    def the_broker_restarts(self) -> None:
        self.driver.restart()

    @invariant()
    def it_equals_the_model(self) -> None:
        if hasattr(self, "driver"):
            assert seen(self.driver.shard) == self.model.seen()

    @invariant()
    def a_replay_is_the_same_before_and_after_a_compaction(self) -> None:
        """The same holds in whichever order the open transactions end."""
        if not hasattr(self, "driver"):
            return
        idle = [producer_id for producer_id in PRODUCERS if not self.model.pending.get(producer_id)]
        busy = [producer_id for producer_id in PRODUCERS if producer_id not in idle]
        left = compacted(self.driver.log)
        for log in (self.driver.log, left) if left != self.driver.log else (left,):
            for order in ([*idle, *ends] for ends in permutations(busy)):
                shard, model = self.driver.replayed(log), self.model.copy()
                assert seen(shard) == model.seen()
                for producer_id in order:
                    shard.end_transaction(producer_id, committed=True)
                    model.end(producer_id, committed=True)
                    assert seen(shard) == model.seen()

    @invariant()
    def nothing_empty_is_kept(self) -> None:
        if hasattr(self, "driver") and not any(self.model.pending.values()):
            pending = self.driver.shard._offsets.pending
            assert (pending._by_group, pending._by_producer) == ({}, {})


def seen(shard: GroupShard) -> dict[Place, int | ErrorCode]:
    driver = ShardDriver()
    driver.shard = shard
    return {place: driver.stable_offset(place[1], place[2], group=place[0]) for place in PLACES}


def test_the_model_compacts_what_it_is_to_compact() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1})
    driver.commit_transactional({("t", 0): 2}, producer_id=1)
    driver.end_transaction(1, committed=False)
    driver.commit({("t", 0): 3})
    driver.commit_transactional({("t", 1): 4}, producer_id=2)
    driver.commit({("t", 0): 5})
    left = [
        change.offset.offset
        for logged in compacted(driver.log)
        if isinstance(logged, LoggedRecord)
        and (change := read_offset(logged.key, logged.value)) is not None
        and change.offset is not None
    ]
    assert left == [3, 4, 5]


TestOffsetsMachine = OffsetsMachine.TestCase
TestOffsetsMachine.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
