"""The requests of tests of offsets in transactions, and the coordinator's marker in the partition of a group."""

from __future__ import annotations

from collections.abc import Mapping

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.node.broker import Broker
from kwire.runtime.futures import at_once
from testkit.fakes.transactions import write_marker
from testkit.scenes.broker_in_trio import InTrio

FIRST_VERSION_WITH_TOPIC_IDS = 6


def txn_commit(
    version: int,
    offsets: Mapping[tuple[str, int], int],
    *,
    group: str = "g",
    producer_id: int = 7,
    epoch: int = 0,
    ids: Mapping[str, Uuid] | None = None,
) -> TxnOffsetCommitRequest:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (name, partition), offset in offsets.items():
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name="" if by_id else name))
        topic.topic_id = (ids or {})[name] if by_id else NULL_UUID
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(partition, offset, 3 if version >= 2 else -1, committed_metadata="note")
        )
    return TxnOffsetCommitRequest(
        transactional_id=f"t{producer_id}",
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=list(topics.values()),
    )


def end_transaction(broker: Broker, *, committed: bool, group: str = "g", producer_id: int = 7, epoch: int = 0) -> None:
    """Appends the coordinator's marker to the group's partition, and notifies the groups."""
    topic, index = at_once(broker.groups.partition_of(group))
    write_marker(broker, topic, index, committed=committed, producer_id=producer_id, epoch=epoch)


async def stable_offset(kwire: InTrio, partition: int = 0, *, group: str = "g", topic: str = "t") -> int | ErrorCode:
    """Returns the answer to a client with `require_stable`: the offset, or the partition's error."""
    wanted = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[partition])])
    answer = await kwire.call(OffsetFetchRequest(groups=[wanted], require_stable=True), 8)
    found = answer.groups[0].topics[0].partitions[0]
    return ErrorCode(found.error_code) if found.error_code else int(found.committed_offset)
