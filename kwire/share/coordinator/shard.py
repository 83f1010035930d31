"""The share coordinator's machine: the states of all share-partitions of one partition of `__share_group_state`.

Its inputs are requests, the outcome of appends, and the time. Its outputs are effects: records to append, replies to
send, records to delete. It neither waits nor reads a clock, so a test of it is a list of calls with numbers.

    start:   apply(key, value, offset) for every record of the partition, then loaded(now)
    running: initialize / read / write / delete / summarize    and expire(now) whenever next_deadline_ms() has come
    end:     unload(now), and no call after it

A group's coordinator initializes a share-partition. Its leader reads the state when it begins, which records its
leader epoch, and then writes changes. Two epochs fence obsolete requests:

* The leader epoch: a leader that was replaced can neither read nor write (FENCED_LEADER_EPOCH).
* The state epoch: a leader with the state from before a reset of the group's offsets cannot write (FENCED_STATE_EPOCH).

Both are compared with the highest one so far, and -1 skips the comparison. A reset has leader epoch 0 in its record,
but the highest stays in memory. The names and rules are those of Kafka 4.3's `ShareCoordinatorShard`. Only the count of
updates since the last snapshot differs: every snapshot resets it, so that a replay of a pruned log counts the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from kwire_protocol.wire import Uuid

from kwire.coordinators.deadlines import Deadline, Deadlines
from kwire.coordinators.effects import Effect, KeyedRecord, Now, Step, Token, response_error
from kwire.share.coordinator.batches import combined
from kwire.share.coordinator.config import ShareStateConfig
from kwire.share.coordinator.effects import Prune
from kwire.share.coordinator.records import Change, Snapshot, Update, read_record
from kwire.share.coordinator.state import (
    NO_COUNT,
    NO_EPOCH,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    StateBatch,
    StoredState,
)

log = logging.getLogger(__name__)

MAX_GROUP_ID_BYTES: Final = 2**15 - 1
"""The maximum size of a group id in UTF-8, which is the limit of the record's key."""

MAX_RECORDS_PER_APPEND: Final = 1_000
MAX_BYTES_PER_APPEND: Final = 512 * 1024
"""The maximum size of the appends of automatic changes to many states. One record may be larger."""

MAX_COLD_STATES: Final = 1_000
NEXT_COLD_STATES_MS: Final = 50
"""MAX_COLD_STATES idle states are recorded again at a time; this is the pause before the next ones."""

MAX_BATCHES: Final = 50_000
"""The maximum number of batches in a state or an update. They are near a mebibyte, the default limit of a record in
Kafka's topics. A leader has a few thousand records in flight. Without this limit a state could grow until no snapshot
of it can be recorded.
"""

NOT_INITIALIZED = "the share-partition has not been initialized"


@attrs.define
class _Entry:
    """A share-partition: its state, and values that are kept in memory only."""

    state: StoredState
    leader_epoch: int
    """The highest leader epoch so far."""
    state_epoch: int
    """The highest state epoch so far."""
    updates: int
    """The number of updates since the last snapshot."""
    snapshot_offset: int
    """The offset of the last snapshot; without one, the offset of the first update."""


class ShareStateShard:
    """`partition_count` returns the number of partitions of a topic; None if there is no such topic.

    The replies are the PartitionResult of each request's response.
    """

    def __init__(self, config: ShareStateConfig, *, partition_count: Callable[[Uuid], int | None]) -> None:
        self.config = config
        self._partition_count = partition_count
        self._entries: dict[SharePartitionKey, _Entry] = {}
        self._last_tombstone_offset: int | None = None
        self._pruned_before = 0
        self._timers = Deadlines()
        self._cold = Deadline(self._check_cold_states)
        self._pruning = Deadline(self._prune)

    # Start, time, end

    def apply(self, key: bytes, value: bytes | None, producer_id: int = -1, *, offset: int) -> None:  # noqa: ARG002
        """Replays one record. Raises ProtocolError or UnsupportedVersion if the bytes cannot be decoded."""
        change = read_record(key, value)
        if change is not None:
            self._apply(change, offset)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Does nothing, since no record of this topic is part of a transaction."""

    def loaded(self, *, now: Now) -> list[Effect]:
        """The replay is complete. No state is deleted at once: this node may not have the newest topics yet."""
        if self._entries:
            self._arm(self._cold, self.config.cold_snapshot_interval_ms, now)
        if self._needed_from() is not None:
            self._arm(self._pruning, self.config.prune_interval_ms, now)
        return []

    def next_deadline_ms(self) -> int | None:
        """Returns the time before which nothing is due."""
        return self._timers.next_deadline_ms()

    def expire(self, *, now: Now) -> list[Effect]:
        """Handles what is due, up to the first append; call again while `next_deadline_ms()` is not after `now`."""
        step = Step(now)
        self._timers.expire(step)
        return step.effects

    def appends_succeed(self) -> None:
        """Appends succeed again after failures: the work that waits for that is now due."""
        self._timers.appends_succeed()

    def unload(self, *, now: Now) -> list[Effect]:  # noqa: ARG002
        """Another node coordinates these states now. No request is pending: each is answered with its own append."""
        self._entries.clear()
        self._timers.cancel(self._cold)
        self._timers.cancel(self._pruning)
        return []

    # Requests

    def initialize(
        self, key: SharePartitionKey, requested: initialize_share_group_state.PartitionData, token: Token, *, now: Now
    ) -> list[Effect]:
        """Initializes a state, or resets it with a higher or equal state epoch.

        Errors: INVALID_REQUEST, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """

        def decide() -> Iterator[Change]:
            _check_key(key)
            entry = self._entries.get(key)
            if entry is not None:
                _check_state_epoch(entry, requested.state_epoch)
            self._check_exists(key)
            is_known = requested.start_offset != UNINITIALIZED_START_OFFSET
            state = StoredState(
                snapshot_epoch=0 if entry is None else entry.state.snapshot_epoch + 1,
                state_epoch=requested.state_epoch,
                leader_epoch=0,
                start_offset=requested.start_offset,
                delivery_complete_count=0 if is_known else NO_COUNT,
                created_ms=now.wall_ms,
                written_ms=now.wall_ms,
            )
            yield Snapshot(key, state)

        return self._decided(decide, token, initialize_share_group_state.PartitionResult, key, now)

    def read(
        self, key: SharePartitionKey, requested: read_share_group_state.PartitionData, token: Token, *, now: Now
    ) -> list[Effect]:
        """Replies with the state for a leader, whose leader epoch is recorded if it is new.

        Errors: INVALID_REQUEST (not initialized, too), FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        result = read_share_group_state.PartitionResult(key.partition)

        def decide() -> Iterator[Change]:
            entry = self._initialized(key)
            _check_leader_epoch(entry, requested.leader_epoch)
            self._check_exists(key)
            state = entry.state
            result.state_epoch = state.state_epoch
            result.start_offset = state.start_offset
            result.state_batches = [read_share_group_state.StateBatch(*batch) for batch in state.batches]
            if requested.leader_epoch not in (NO_EPOCH, entry.leader_epoch):
                yield self._changed(
                    key,
                    entry,
                    leader_epoch=requested.leader_epoch,
                    start_offset=state.start_offset,
                    delivery_complete_count=state.delivery_complete_count,
                    batches=(),
                    now=now,
                )

        return self._decided(decide, token, read_share_group_state.PartitionResult, key, now, result)

    def write(
        self, key: SharePartitionKey, requested: write_share_group_state.PartitionData, token: Token, *, now: Now
    ) -> list[Effect]:
        """Combines batches with the state. A start offset of -1 changes nothing; others replace it, even backwards.

        The record keeps the leader epoch of the state. Errors: as `read`, and FENCED_STATE_EPOCH.
        """

        def decide() -> Iterator[Change]:
            entry = self._initialized(key)
            _check_leader_epoch(entry, requested.leader_epoch)
            _check_state_epoch(entry, requested.state_epoch)
            self._check_exists(key)
            yield self._changed(
                key,
                entry,
                leader_epoch=entry.state.leader_epoch,
                start_offset=requested.start_offset,
                delivery_complete_count=requested.delivery_complete_count,
                batches=[
                    StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                    for batch in requested.state_batches
                ],
                now=now,
            )

        return self._decided(decide, token, write_share_group_state.PartitionResult, key, now)

    def delete(
        self,
        key: SharePartitionKey,
        requested: delete_share_group_state.PartitionData,  # noqa: ARG002
        token: Token,
        *,
        now: Now,
    ) -> list[Effect]:
        """Deletes a state and its epochs. It succeeds without a state too.

        Errors: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION.
        """

        def decide() -> Iterator[Change]:
            _check_key(key)
            self._check_exists(key)
            if key in self._entries:
                yield Snapshot(key, None)

        return self._decided(decide, token, delete_share_group_state.PartitionResult, key, now)

    def summarize(
        self,
        key: SharePartitionKey,
        requested: read_share_group_state_summary.PartitionData,  # noqa: ARG002
        token: Token,
        *,
        now: Now,
    ) -> list[Effect]:
        """Replies with start offset, epochs and count. No leader is fenced, and a missing state is no error.

        Errors: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION.
        """
        result = read_share_group_state_summary.PartitionResult(key.partition)

        def decide() -> Iterator[Change]:
            _check_key(key)
            self._check_exists(key)
            entry = self._entries.get(key)
            if entry is None:
                result.start_offset = UNINITIALIZED_START_OFFSET
                return
            state = entry.state
            result.state_epoch, result.leader_epoch = state.state_epoch, state.leader_epoch
            result.start_offset = state.start_offset
            result.delivery_complete_count = state.delivery_complete_count
            yield from ()

        return self._decided(decide, token, read_share_group_state_summary.PartitionResult, key, now, result)

    def forget_topics(self, topic_ids: Collection[Uuid], *, now: Now) -> list[Effect]:
        """Deletes the states of the partitions of deleted topics."""
        step = Step(now)
        self._append(step, [Snapshot(key, None) for key in self._entries if key.topic_id in topic_ids])
        return step.effects

    def pruned(self, before_offset: int, *, done: bool, now: Now) -> list[Effect]:
        """Takes the outcome of a `Prune`, which is repeated if it failed."""
        if done:
            self._pruned_before = before_offset
        else:
            self._arm(self._pruning, self.config.prune_interval_ms, now)
        return []

    # Decisions

    def _decided(
        self,
        decide: Callable[[], Iterable[Change]],
        token: Token,
        refused: Callable[[int, int, str | None], object],
        key: SharePartitionKey,
        now: Now,
        result: object | None = None,
    ) -> list[Effect]:
        """Appends the decided changes, then replies with `result`, or with `refused` of partition, error, message."""
        step = Step(now)
        try:
            changes = list(decide())
        except KafkaError as error:
            step.reply(token, refused(key.partition, error.code, error.message))
            return step.effects
        self._append(step, changes)
        step.reply_when_appended(
            token,
            refused(key.partition, ErrorCode.NONE, None) if result is None else result,
            lambda error: refused(key.partition, error, "the share-partition's state could not be recorded"),
        )
        return step.effects

    def _changed(
        self,
        key: SharePartitionKey,
        entry: _Entry,
        *,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Collection[StateBatch],
        now: Now,
    ) -> Change:
        update = Update(
            key,
            entry.state.snapshot_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            combined((), batches, start_offset),
        )
        # A written batch may split an existing one, but need not: the exact count is taken only near the limit.
        if (
            len(entry.state.batches) + 2 * len(update.batches) > MAX_BATCHES
            and max(len(update.batches), len(update.applied_to(entry.state).batches)) > MAX_BATCHES
        ):
            raise KafkaError(response_error(ErrorCode.MESSAGE_TOO_LARGE), f"a state has {MAX_BATCHES} batches at most")
        if entry.updates < self.config.updates_per_snapshot:
            return update
        return Snapshot(
            key,
            attrs.evolve(
                update.applied_to(entry.state),
                snapshot_epoch=entry.state.snapshot_epoch + 1,
                created_ms=now.wall_ms,
                written_ms=now.wall_ms,
            ),
        )

    def _initialized(self, key: SharePartitionKey) -> _Entry:
        _check_key(key)
        entry = self._entries.get(key)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NOT_INITIALIZED)
        return entry

    def _check_exists(self, key: SharePartitionKey) -> None:
        count = self._partition_count(key.topic_id)
        if count is None or key.partition >= count:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")

    # Records

    def _append(self, step: Step, changes: Iterable[Change]) -> None:
        """Appends the changes in batches, and applies each batch once it is appended."""
        batch: list[Change] = []
        records: list[KeyedRecord] = []
        size = 0
        for change in changes:
            key, value = change.record()
            if batch and (
                len(batch) == MAX_RECORDS_PER_APPEND or size + len(key) + len(value or b"") > MAX_BYTES_PER_APPEND
            ):
                step.append(records, partial(self._appended, batch))
                batch, records, size = [], [], 0
            batch.append(change)
            records.append((key, value))
            size += len(key) + len(value or b"")
        if batch:
            step.append(records, partial(self._appended, batch))

    def _appended(self, changes: list[Change], step: Step, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            # States of deleted topics that could not be deleted now are found then.
            self._arm(self._cold, self.config.cold_snapshot_interval_ms, step.now)
            return
        for offset, change in enumerate(changes, start=step.base_offset):
            self._apply(change, offset)
            if isinstance(change, Snapshot):
                self._arm(self._pruning, self.config.prune_interval_ms, step.now)
        self._arm(self._cold, self.config.cold_snapshot_interval_ms, step.now)

    def _apply(self, change: Change, offset: int) -> None:
        entry = self._entries.get(change.key)
        if isinstance(change, Update):
            if entry is None:
                state = change.applied_to(None)
                self._entries[change.key] = _Entry(state, state.leader_epoch, state.state_epoch, 1, offset)
            else:
                entry.state = change.applied_to(entry.state)
                entry.leader_epoch = max(entry.leader_epoch, change.leader_epoch)
                entry.updates += 1
        elif change.state is None:
            self._entries.pop(change.key, None)
            self._last_tombstone_offset = offset
        else:
            state = change.state
            leader_epoch, state_epoch = state.leader_epoch, state.state_epoch
            if entry is not None:
                leader_epoch = max(leader_epoch, entry.leader_epoch)
                state_epoch = max(state_epoch, entry.state_epoch)
            self._entries[change.key] = _Entry(state, leader_epoch, state_epoch, 0, offset)

    # Automatic work

    def _arm(self, timer: Deadline, interval_ms: int, now: Now) -> None:
        if timer.deadline_ms is None:
            self._timers.schedule(timer, now.monotonic_ms + interval_ms)

    def _check_cold_states(self, step: Step) -> None:
        """Repeats states that were not recorded for long, so that older records in the log can be deleted.

        If no request has recorded a state since, the log does not grow, and nothing is done. States of topics that do
        not exist are deleted: the topic may have been deleted between two coordinators.
        """
        gone = {key.topic_id for key in self._entries if self._partition_count(key.topic_id) is None}
        changes: list[Change] = [Snapshot(key, None) for key in self._entries if key.topic_id in gone]
        left = [(key, entry.state) for key, entry in self._entries.items() if key.topic_id not in gone]
        if any(state.created_ms == state.written_ms for _, state in left):
            before_ms = step.now.wall_ms - self.config.cold_snapshot_interval_ms
            cold = [(key, state) for key, state in left if state.written_ms <= before_ms]
            changes += [
                Snapshot(key, attrs.evolve(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=step.now.wall_ms))
                for key, state in cold[:MAX_COLD_STATES]
            ]
            is_all = len(cold) <= MAX_COLD_STATES
            self._arm(self._cold, self.config.cold_snapshot_interval_ms if is_all else NEXT_COLD_STATES_MS, step.now)
        if gone:
            log.info("the share state of %d topics is deleted, because they are", len(gone))
        self._append(step, changes)

    def _prune(self, step: Step) -> None:
        needed_from = self._needed_from()
        if needed_from is not None and needed_from > self._pruned_before:
            step.effects.append(Prune(needed_from))

    def _needed_from(self) -> int | None:
        """Returns the offset of the first record that a replay needs. Kafka's `ShareCoordinatorOffsetsManager`.

        Each share-partition's last snapshot is needed, and all later records. The last tombstone is kept, as in Kafka.
        """
        if self._entries:
            return min(entry.snapshot_offset for entry in self._entries.values())
        return self._last_tombstone_offset


def _check_key(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is not negative")
    if len(key.group_id.encode()) > MAX_GROUP_ID_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a group id has {MAX_GROUP_ID_BYTES} bytes at most")


def _check_leader_epoch(entry: _Entry, leader_epoch: int) -> None:
    if leader_epoch != NO_EPOCH and leader_epoch < entry.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {leader_epoch} is older than {entry.leader_epoch}"
        )


def _check_state_epoch(entry: _Entry, state_epoch: int) -> None:
    if state_epoch != NO_EPOCH and state_epoch < entry.state_epoch:
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, f"state epoch {state_epoch} is older than {entry.state_epoch}")
