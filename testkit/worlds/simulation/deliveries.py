"""The promises to the members of a share group, and checks of them (KIP-932).

* A member that gets a record holds it alone, as long as its lock, its connection and the share partition last, and may
  end or renew that.
* Acknowledgements are recorded: a record that was accepted or rejected is not delivered again, and a record that was
  released comes back with a higher delivery count. Only a leader that does not have its replacement in its metadata yet
  may lack them.
* The records before the group's start offset were delivered, at least once; or so often without an answer that they
  were archived.
* A record that was rejected, or delivered too often, is in the dead-letter topic, and none that was accepted is.

There is no promise about lost records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

import attrs
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.read_share_group_state import PartitionResult
from kwire_protocol.records import Record

from kwire.client.async_connection import AsyncBrokerConnection
from kwire.names.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from kwire.share.leader.led import LedSharePartition
from kwire.share.leader.states import AcknowledgeType, RecordState
from testkit.worlds.simulation.eligibility import PartitionId
from testkit.worlds.simulation.history import BrokenPromise
from testkit.worlds.simulation.ledger import Ledger

LOCK_DURATION_MS: Final = 1000
"""The shortest that may be."""
DELIVERY_COUNT_LIMIT: Final = 5

_TICK_S: Final = 0.002
"""The maximum time by which a deadline may be early, because brokers count whole milliseconds."""

_REFUSALS: Final = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)

RecordId = tuple[PartitionId, int]


class Fate(Enum):
    ACCEPTED = (RecordState.ACKNOWLEDGED,)
    FAILED = (RecordState.ARCHIVED, RecordState.ARCHIVING)
    """It was rejected, or delivered too often."""
    ANY = (*ACCEPTED, *FAILED)
    """The fates of a record whose acknowledgement was confirmed to some member."""


@attrs.define(eq=False)
class Hold:
    """A member's lock on a record from one request, which it holds while `is_good`."""

    member_id: str
    share_partition: LedSharePartition | None
    """The share partition that delivered it; None if that is not certain."""
    connection: AsyncBrokerConnection | None
    until: float
    delivery_count: int
    answered_at: float

    @classmethod
    def begun(
        cls,
        member_id: str,
        share_partition: LedSharePartition | None,
        connection: AsyncBrokerConnection | None,
        sent_at: float,
        delivery_count: int,
    ) -> Hold:
        until = sent_at + LOCK_DURATION_MS / 1000 - _TICK_S
        return cls(member_id, share_partition, connection, until, delivery_count, trio.current_time())

    def renew(self, sent_at: float) -> None:
        self.until = max(self.until, sent_at + LOCK_DURATION_MS / 1000 - _TICK_S)

    @property
    def is_good(self) -> bool:
        connection = self.connection
        return (
            self.share_partition is not None
            and trio.current_time() < self.until
            and connection is not None
            and not connection.is_closed
        )


@attrs.define(eq=False)
class Deliveries:
    ledger: Ledger
    records: dict[PartitionId, dict[int, Record]] = attrs.field(factory=dict)
    """The delivered records, by offset."""
    assigned: set[int] = attrs.field(factory=set)
    """The partitions that a member was assigned, at any time: they have a state."""
    settled_to: dict[PartitionId, int] = attrs.field(factory=dict)
    """Everything before this offset is done."""
    unanswered: Counter[PartitionId] = attrs.field(factory=Counter)
    """The number of fetches without a response, which may have delivered something."""
    accepted: int = 0
    _done: dict[RecordId, tuple[Fate, float]] = attrs.field(factory=dict)
    """The final fates, with the time of the answer."""
    _released: dict[RecordId, tuple[int, float]] = attrs.field(factory=dict)
    """The last delivery count with which it was released, and the time of the answer."""
    _last: dict[RecordId, Hold] = attrs.field(factory=dict)
    _held: dict[RecordId, Hold] = attrs.field(factory=dict)

    def forgives(self, key: PartitionId) -> bool:
        lost = (it.key for it in self.ledger.losses)
        return any(it == key or it[0] in (SHARE_GROUP_STATE, CONSUMER_OFFSETS) for it in lost)

    # Deliveries

    def delivered(
        self,
        record_id: RecordId,
        record: Record | None,
        hold: Hold,
        sent_at: float,
        *,
        current: bool,
    ) -> None:
        """Notes a record in the response to a fetch that was sent then; `current` if it was sent to the leader, which
        had its own leadership in its metadata.
        """
        key, offset = record_id
        count, share_partition = hold.delivery_count, hold.share_partition
        if not 1 <= count <= DELIVERY_COUNT_LIMIT:
            raise BrokenPromise(f"{key}: {offset} is delivered {count} times")
        if record is None:
            raise BrokenPromise(f"{key}: {hold.member_id} has acquired {offset}, and got no record")
        before = self.records.setdefault(key, {}).setdefault(offset, record)
        if self.forgives(key):
            return
        if before.value != record.value:
            raise BrokenPromise(f"{key}: at {offset}, {before.value!r} was delivered, and now {record.value!r}")
        if current:
            self._check_delivery(record_id, hold, sent_at)
        last = self._last.get(record_id)
        if last is not None and share_partition is not None and last.share_partition is share_partition:
            if last.answered_at <= sent_at and count <= last.delivery_count:
                raise BrokenPromise(f"{key}: {offset} is delivered with {count} after {last.delivery_count}")
            other = self._held.get(record_id)
            if other is not None and other.share_partition is share_partition and other.is_good:
                raise BrokenPromise(f"{key}: {hold.member_id} gets {offset}, and {other.member_id} holds it")
        self._last[record_id] = self._held[record_id] = hold

    def _check_delivery(self, record_id: RecordId, hold: Hold, sent_at: float) -> None:
        fate, done_at = self._done.get(record_id, (None, 0.0))
        if fate is not None and done_at <= sent_at:
            raise BrokenPromise(
                f"{record_id} is {fate.name} since {done_at:.3f}, and a fetch of {sent_at:.3f} gets it again"
            )
        count, released_at = self._released.get(record_id, (0, 0.0))
        if released_at <= sent_at and hold.delivery_count <= count:
            raise BrokenPromise(f"{record_id} was released with {count}, and comes back with {hold.delivery_count}")

    def given_up(self, key: PartitionId, offset: int, hold: Hold) -> None:
        """Notes that the member is about to acknowledge it, or does not hold it any more for another reason."""
        if self._held.get((key, offset)) is hold:
            del self._held[key, offset]

    # Acknowledgements

    def acknowledged(
        self, key: PartitionId, offset: int, kind: int, hold: Hold, sent_at: float, *, is_sure: bool
    ) -> None:
        """Notes that the member's acknowledgement was confirmed. `is_sure` if the member held it all the time: else it
        may have been done before, and the leader does not report that.
        """
        record_id, now = (key, offset), trio.current_time()
        if self.forgives(key):
            return
        if kind == AcknowledgeType.RENEW:
            if is_sure:
                hold.renew(sent_at)
            return
        if kind == AcknowledgeType.RELEASE and not (is_sure and hold.delivery_count >= DELIVERY_COUNT_LIMIT):
            if is_sure:
                self._released[record_id] = hold.delivery_count, now
            return
        self.accepted += kind == AcknowledgeType.ACCEPT
        fate = Fate.ANY if not is_sure else Fate.ACCEPTED if kind == AcknowledgeType.ACCEPT else Fate.FAILED
        before, done_at = self._done.get(record_id, (Fate.ANY, now))
        if Fate.ANY not in (before, fate) and before is not fate:
            raise BrokenPromise(f"{record_id} is {before.name} since {done_at:.3f}, and now {fate.name}")
        self._done[record_id] = before if fate is Fate.ANY else fate, done_at

    def refused(self, key: PartitionId, error: int, *, is_sure: bool) -> None:
        """An acknowledgement. `is_sure` if the member held all of it, all the time."""
        if is_sure and error in _REFUSALS and not self.forgives(key):
            raise BrokenPromise(f"{key}: error {error} for the acknowledgement of what the member holds")
        self.failed(key, error)

    def failed(self, key: PartitionId, error: int) -> None:
        """A fetch, or an acknowledgement."""
        if error == ErrorCode.UNKNOWN_SERVER_ERROR and not self.forgives(key):
            raise BrokenPromise(f"{key}: the share partition has no state that makes sense")

    # At the end

    def check_delivered(self, found: Mapping[PartitionId, Collection[Record]]) -> None:
        """`found` is what the group may read."""
        for key, end in self.settled_to.items():
            if self.forgives(key) or self.unanswered[key] >= DELIVERY_COUNT_LIMIT:
                continue
            known = self.records.get(key, {})
            for record in found.get(key, ()):
                if record.offset < end and record.offset not in known:
                    raise BrokenPromise(f"{key}: {record.value!r} at {record.offset} was never delivered")

    def check_state(self, key: PartitionId, state: PartitionResult) -> None:
        """Checks the share coordinator's records. It has the confirmed acknowledgements, and nothing else."""
        if self.forgives(key):
            return
        if state.error_code:
            raise BrokenPromise(f"{key}: {state}")
        recorded = {
            offset: RecordState(it.delivery_state)
            for it in state.state_batches
            for offset in range(it.first_offset, it.last_offset + 1)
        }
        for (where, offset), (fate, _) in self._done.items():
            if where == key and offset >= state.start_offset and recorded.get(offset) not in fate.value:
                raise BrokenPromise(f"{key}: {offset} is {fate.name}, and recorded as {recorded.get(offset)}")
        settled_to = self.settled_to.get(key, 0)
        if state.start_offset > settled_to:
            raise BrokenPromise(f"{key}: begins at {state.start_offset}, after {settled_to}")
        for offset in self.records.get(key, {}):
            if state.start_offset <= offset < settled_to and recorded.get(offset) not in Fate.ANY.value:
                raise BrokenPromise(f"{key}: {offset} is left behind, and recorded as {recorded.get(offset)}")

    def check_letters(self, letters: Collection[RecordId]) -> None:
        """`letters` are the records that are in the dead-letter topic."""
        for (key, offset), (fate, _) in self._done.items():
            if self.forgives(key) or fate is Fate.ANY:
                continue
            is_there = (key, offset) in letters
            if is_there is not (fate is Fate.FAILED):
                raise BrokenPromise(f"{key}: {offset} is {fate.name}, and {'' if is_there else 'not '}a dead letter")
