"""Requests that every kind of group has: its offsets, its place in the list of groups."""

from __future__ import annotations

from collections.abc import Callable

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from kwire_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire_protocol.wire import Writer

from testkit.clients.transactions.raw import RawProducer
from testkit.raw.client import RawClient
from testkit.raw.topic_ids import topic_id


def subscription(*topics: str) -> bytes:
    """The metadata of a classic consumer."""
    w = Writer()
    w.int16(1)
    ConsumerProtocolSubscription([*topics]).write(w, 1)
    return bytes(w.getvalue())


def commit(
    client: RawClient,
    version: int,
    group: str,
    member: str,
    epoch: int,
    topic: str,
    partition: int = 0,
    offset: int = 5,
) -> ErrorCode:
    wanted = OffsetCommitRequestTopic(partitions=[OffsetCommitRequestPartition(partition, offset)])
    if version >= 10:
        wanted.topic_id = topic_id(client, topic)
    else:
        wanted.name = topic
    request = OffsetCommitRequest(group, epoch, member, topics=[wanted])
    return ErrorCode(client.call(request, version).topics[0].partitions[0].error_code)


def fetch(client: RawClient, version: int, group: str, member: str | None, epoch: int, topic: str) -> tuple[int, int]:
    """Error of the group, and offset of the topic's first partition."""
    wanted = OffsetFetchRequestTopics(partition_indexes=[0])
    if version >= 10:
        wanted.topic_id = topic_id(client, topic)
    else:
        wanted.name = topic
    requested = OffsetFetchRequestGroup(group, member, epoch, [wanted])
    (answer,) = client.call(OffsetFetchRequest(groups=[requested]), version).groups
    return answer.error_code, answer.topics[0].partitions[0].committed_offset if answer.topics else -1


def delete_offset(client: RawClient, group: str, topic: str) -> tuple[int, list[int]]:
    """Error of the group, and of the topic's first partition."""
    wanted = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])
    answer = client.call(OffsetDeleteRequest(group, [wanted]), 0)
    return answer.error_code, [part.error_code for it in answer.topics for part in it.partitions]


def transactional_commit(
    client: RawClient, version: int, transactional_id: str, group: str, topic: str
) -> Callable[[str, int], ErrorCode]:
    """Begins a transaction with the group in it. Returns what commits an offset for a member in an epoch."""
    producer = RawProducer.initialized(client, transactional_id)
    ids = (producer.producer_id, producer.epoch)
    added = client.call(AddOffsetsToTxnRequest(transactional_id, *ids, group), 3)
    assert added.error_code == ErrorCode.NONE

    def commit(member: str, epoch: int) -> ErrorCode:
        wanted = TxnOffsetCommitRequestTopic(topic, partitions=[TxnOffsetCommitRequestPartition(0, 5)])
        request = TxnOffsetCommitRequest(transactional_id, group, *ids, topics=[wanted])
        if version >= 3:
            request.member_id, request.generation_id_or_member_epoch = member, epoch
        return ErrorCode(client.call(request, version).topics[0].partitions[0].error_code)

    return commit


def listed(client: RawClient, group: str, version: int, *states: str, types: tuple[str, ...] = ()) -> list[str]:
    """State and type of the group, if it is listed."""
    answer = client.call(ListGroupsRequest([*states], [*types]), version)
    assert answer.error_code == ErrorCode.NONE
    return [part for it in answer.groups if it.group_id == group for part in (it.group_state, it.group_type)]
