"""Offsets committed in transactions: pending until the transaction's marker is in the partition.

The rules are those of Kafka's OffsetMetadataManager:

* pending offsets are invisible; a client that needs offsets without pending ones sets `require_stable` (KIP-447);
* a marker commits the pending offsets of its producer, or drops them;
* of several offsets for one partition, the one that was written last wins, inside or outside of a transaction and in
  any order of the markers: otherwise a compaction, which keeps the last record of a key, would bring back another one;
* a removal also removes the pending offsets before it.

For the third rule Kafka compares the offsets of the records. Here records are applied in order, so each pending offset
only needs a mark if a later one has already been committed: then it is outdated.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from kwire_protocol.wire import Uuid

from kwire.groups.offsets.records import CommittedOffset, OffsetChange

_GroupPartition = tuple[str, str, int]

_Pending = dict[int, CommittedOffset | None]
"""The offsets of one partition: producer id -> its offset, None if it is outdated. The latest commit is last."""


@attrs.define(eq=False)
class PendingOffsets:
    """The pending offsets of all groups of a shard; empty dictionaries are removed."""

    _by_group: dict[str, dict[str, dict[int, _Pending]]] = attrs.field(factory=dict)
    """Group -> topic -> partition -> its pending offsets."""
    _by_producer: dict[int, dict[_GroupPartition, None]] = attrs.field(factory=dict)
    """Producer id -> group, topic and partition of each of its offsets, in the order of the first commit to them."""

    def add(self, producer_id: int, change: OffsetChange) -> None:
        """The producer has committed an offset in its transaction; it replaces an earlier one of that producer."""
        assert change.offset is not None
        topics = self._by_group.setdefault(change.group_id, {})
        pending = topics.setdefault(change.topic, {}).setdefault(change.partition, {})
        pending.pop(producer_id, None)
        pending[producer_id] = change.offset
        self._by_producer.setdefault(producer_id, {})[change.group_id, change.topic, change.partition] = None

    def outdate(self, group_id: str, topic: str, partition: int) -> None:
        """An offset was committed outside of transactions, after all pending offsets."""
        pending = self._find(group_id, topic, partition)
        for producer_id in pending:
            pending[producer_id] = None

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        for producer_id in list(self._find(group_id, topic, partition)):
            self._take(producer_id, (group_id, topic, partition))
            own = self._by_producer[producer_id]
            del own[group_id, topic, partition]
            if not own:
                del self._by_producer[producer_id]

    def end(self, producer_id: int, *, committed: bool) -> list[OffsetChange]:
        """The producer's transaction has ended: returns the offsets that now apply, and marks earlier ones outdated."""
        changes: list[OffsetChange] = []
        for group_id, topic, partition in self._by_producer.pop(producer_id, ()):
            if committed:
                pending = self._find(group_id, topic, partition)
                offset = pending[producer_id]
                if offset is not None:
                    changes.append(OffsetChange(group_id, topic, partition, offset))
                    for earlier in pending:
                        if earlier == producer_id:
                            break
                        pending[earlier] = None
            self._take(producer_id, (group_id, topic, partition))
        return changes

    # Look-up

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction has an offset for the partition, outdated or not."""
        return bool(self._find(group_id, topic, partition))

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group

    def of_group(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Topic and partition of every offset pending for the group."""
        for topic, partitions in self._by_group.get(group_id, {}).items():
            for partition in partitions:
                yield topic, partition

    def topic_ids(self, topic: str) -> Iterator[tuple[str, int, Uuid]]:
        """Returns the group, partition and topic id of each offset pending for a topic with this name."""
        for group_id, topics in self._by_group.items():
            for partition, pending in topics.get(topic, {}).items():
                for offset in pending.values():
                    if offset is not None:
                        yield group_id, partition, offset.topic_id

    def _find(self, group_id: str, topic: str, partition: int) -> _Pending:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition, {})

    def _take(self, producer_id: int, key: _GroupPartition) -> None:
        group_id, topic, partition = key
        topics = self._by_group[group_id]
        partitions = topics[topic]
        pending = partitions[partition]
        del pending[producer_id]
        if not pending:
            del partitions[partition]
        if not partitions:
            del topics[topic]
        if not topics:
            del self._by_group[group_id]
