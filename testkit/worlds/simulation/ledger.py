"""The promises to clients, and checks of them."""

from __future__ import annotations

from collections import Counter

import attrs
import trio
from kwire_protocol.records import Record

from kwire.names.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from testkit.worlds.simulation.eligibility import Loss, PartitionId
from testkit.worlds.simulation.history import BrokenPromise, History

UNKNOWN = "unknown"
COMMITTED = "committed"
ABORTED = "aborted"


@attrs.define
class Owner:
    """A member of a group that was assigned a partition at that time, and may use it until its session ends."""

    member_id: str
    since: float
    until: float


@attrs.define(eq=False)
class Ledger:
    """The promises. `acknowledged` has values by their acknowledged offset, and when they were sent first;
    `transactions` their fate and their partitions.
    """

    acknowledged: dict[PartitionId, dict[int, tuple[bytes, float]]] = attrs.field(factory=dict)
    sent: Counter[bytes] = attrs.field(factory=Counter)
    transactions: dict[bytes, str] = attrs.field(factory=dict)
    members: dict[bytes, set[PartitionId]] = attrs.field(factory=dict)
    """The partitions of each transaction."""
    commits: dict[PartitionId, tuple[int, int]] = attrs.field(factory=dict)
    """The last generation and offset that a group's member committed for a partition."""
    processed_to: dict[PartitionId, int] = attrs.field(factory=dict)
    """The highest offset that a group's member was ready to commit for a partition."""
    committed_at: dict[PartitionId, float] = attrs.field(factory=dict)
    """The last time when a commit of a group's member was accepted."""
    owners: dict[PartitionId, Owner] = attrs.field(factory=dict)
    """The last one of each of a group's partitions, unless it gave it up."""
    highest_epoch: int = 0
    """The highest epoch that a group's member has received."""
    acknowledgements: int = 0
    latest: dict[tuple[PartitionId, int], int] = attrs.field(factory=dict)
    """The last end offset that a reader has received, by isolation level."""
    losses: list[Loss] = attrs.field(factory=list)
    """Those that are forgiven."""

    def lose(self, loss: Loss) -> None:
        self.losses.append(loss)
        for (key, level), end in self.latest.items():
            if key == loss.key:
                # Without the markers that are lost, earlier transactions are open again.
                self.latest[key, level] = 0 if level else min(end, loss.offset)
        if loss.key[0] == CONSUMER_OFFSETS:
            self.commits.clear()
            self.owners.clear()
            self.highest_epoch = 0

    def has_lost(self, key: PartitionId) -> bool:
        return any(it.key == key for it in self.losses)

    @property
    def has_lost_groups(self) -> bool:
        """True if a group's coordinator may have lost its state."""
        return any(it.key[0] == CONSUMER_OFFSETS for it in self.losses)

    def _is_forgiven(self, key: PartitionId, offset: int, sent_at: float) -> bool:
        return any(it.key == key and offset >= it.offset and sent_at <= it.at for it in self.losses)

    def _is_torn(self, transaction: bytes) -> bool:
        """True if its coordinator, or one of its partitions, may have lost it."""
        lost = {it.key for it in self.losses}
        return any(it[0] == TRANSACTION_STATE for it in lost) or not lost.isdisjoint(self.members[transaction])

    def acknowledge(self, key: PartitionId, offset: int, value: bytes, sent_at: float) -> None:
        self.acknowledgements += 1
        promised = self.acknowledged.setdefault(key, {})
        known = promised.get(offset)
        if known is None or self._is_forgiven(key, offset, known[1]):
            promised[offset] = value, sent_at
        elif known[0] != value and not self._is_forgiven(key, offset, sent_at):
            raise BrokenPromise(f"{key}: offset {offset} was acknowledged for {known[0]!r} and for {value!r}")

    def committed(self, key: PartitionId, generation: int, offset: int, before: tuple[int, int] | None) -> None:
        """Notes a commit that the group's coordinator has accepted.

        `before` is the state of `commits` when the request was sent: a commit accepted meanwhile may have come first,
        and its answer later.
        """
        if before is not None and generation < before[0]:
            raise BrokenPromise(f"{key}: generation {generation} committed after generation {before[0]}")
        if before is not None and offset < before[1]:
            raise BrokenPromise(f"{key}: offset {offset} was committed after {before[1]}")
        self.commits[key] = max(self.commits.get(key, (-1, -1)), (generation, offset))
        self.committed_at[key] = trio.current_time()

    def fetched_commit(self, key: PartitionId, offset: int, before: tuple[int, int] | None) -> None:
        """Notes a committed offset in the coordinator's response. `before` as above."""
        if before is not None and offset < before[1]:
            raise BrokenPromise(f"{key}: the committed offset is {offset}, and {before[1]} was committed")
        if offset > self.processed_to.get(key, -1):
            raise BrokenPromise(f"{key}: the committed offset is {offset}, and nobody committed that")

    def processed(self, key: PartitionId, offset: int) -> None:
        """A member commits it next."""
        self.processed_to[key] = max(self.processed_to.get(key, -1), offset)

    def owned(self, key: PartitionId, member_id: str, sent_at: float, until: float) -> None:
        """Notes that the response to a request which was sent then assigned a group's partition to a member: no other
        member may use it any more.

        If the response came so late that the coordinator may have removed the member, others may have the partition.
        """
        now, other = trio.current_time(), self.owners.get(key)
        if until < now:
            if other is not None and other.since < sent_at:
                del self.owners[key]  # the coordinator has taken the partition from this member
            return
        if other is not None and other.member_id != member_id and other.until > now:
            raise BrokenPromise(
                f"{key}: {member_id} was told to use it, and {other.member_id} may until {other.until:.3f}"
            )
        self.owners[key] = Owner(member_id, now, until)

    def still_owned(self, key: PartitionId, member_id: str, sent_at: float, until: float) -> None:
        """Notes that the response to a heartbeat that was sent then lets the member keep a partition."""
        self.check_owner(key, member_id, sent_at, "got it in a response and may use it")
        owner = self.owners.get(key)
        if owner is not None and owner.member_id == member_id:
            owner.until = max(owner.until, until)

    def check_owner(self, key: PartitionId, member_id: str, sent_at: float, what: str) -> None:
        """A request of this member that was sent then was accepted."""
        owner = self.owners.get(key)
        if owner is not None and owner.member_id != member_id and owner.since < sent_at:
            raise BrokenPromise(
                f"{key}: {member_id} {what} at {sent_at:.3f}, and {owner.member_id} has it since {owner.since:.3f}"
            )

    def given_up(self, key: PartitionId, member_id: str) -> None:
        owner = self.owners.get(key)
        if owner is not None and owner.member_id == member_id:
            del self.owners[key]

    def note_epoch(self, epoch: int) -> None:
        self.highest_epoch = max(self.highest_epoch, epoch)

    def note_end(self, key: PartitionId, isolation_level: int, offset: int) -> None:
        """A reader never sees an end go back (KIP-207)."""
        before = self.latest.get((key, isolation_level), 0)
        if offset < before:
            raise BrokenPromise(f"{key}: the end for isolation level {isolation_level} went from {before} to {offset}")
        self.latest[key, isolation_level] = offset

    def check_records(self, found: dict[PartitionId, list[Record]]) -> None:
        """`found` is what all partitions have at the end."""
        for key, promised in self.acknowledged.items():
            values = {it.offset: it.value for it in found.get(key, [])}
            for offset, (value, sent_at) in promised.items():
                if values.get(offset) != value and not self._is_forgiven(key, offset, sent_at):
                    raise BrokenPromise(
                        f"{key}: {value!r} was acknowledged at offset {offset}, which has {values.get(offset)!r}"
                    )
        counts = Counter(it.value for records in found.values() for it in records)
        for once in self.sent:
            if counts[once] > self.sent[once]:
                raise BrokenPromise(f"{once!r} is there {counts[once]} times")

    def check_read(self, read: dict[PartitionId, list[Record]], found: dict[PartitionId, list[Record]]) -> None:
        """Checks that the records of a reader are there at the end."""
        for key, records in read.items():
            values = {it.offset: it.value for it in found.get(key, [])}
            for record in records:
                if values.get(record.offset) != record.value:
                    raise BrokenPromise(f"{key}: a reader has read {record.value!r} at {record.offset}, which is gone")

    def check_no_aborted(self, found: dict[PartitionId, list[Record]]) -> None:
        """Checks for aborted records. `found` are those that a reader of committed records has read, at any time."""
        for key, records in found.items():
            for record in records:
                name = record.value or b""
                if record.key == b"txn" and self.transactions.get(name) == ABORTED and not self._is_torn(name):
                    raise BrokenPromise(f"{record.value!r} was aborted, and is in {key}")

    def check_transactions(self, found: dict[PartitionId, list[Record]]) -> None:
        """`found` is what a reader of committed records sees at the end."""
        seen: dict[bytes, set[PartitionId]] = {}
        for key, records in found.items():
            for record in records:
                if record.key == b"txn":
                    assert record.value is not None
                    if self._is_torn(record.value):
                        continue
                    where = seen.setdefault(record.value, set())
                    if key in where:
                        raise BrokenPromise(f"{record.value!r} is twice in {key}")
                    where.add(key)
        self.check_no_aborted(found)
        for name, fate in self.transactions.items():
            if self._is_torn(name):
                continue
            there, all_of_it = seen.get(name, set()), self.members[name]
            if fate == COMMITTED and there != all_of_it:
                raise BrokenPromise(f"{name!r} was committed in {sorted(all_of_it)}, and is in {sorted(there)}")
            if there and there != all_of_it:
                raise BrokenPromise(f"{name!r} is in {sorted(there)} of {sorted(all_of_it)}")


__all__ = ["ABORTED", "COMMITTED", "UNKNOWN", "BrokenPromise", "History", "Ledger"]
