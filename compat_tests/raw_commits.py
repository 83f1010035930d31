"""OffsetCommit of one offset, and its error."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from kwire.tests.raw_client import RawClient

from .topic_ids import topic_id


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
