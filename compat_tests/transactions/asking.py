"""What the broker says of transactions by itself, asked without any client's help or second try."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

from kwire.tests.raw_client import RawClient

from .client import Spot

LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_LIST_VERSION, _FETCH_VERSION = 7, 8


def end_offset(bootstrap: str, spot: Spot, *, committed: bool) -> int:
    """The last stable offset with `committed`, or else the high watermark."""
    level = READ_COMMITTED if committed else READ_UNCOMMITTED
    wanted = ListOffsetsTopic(spot[0], [ListOffsetsPartition(spot[1], timestamp=LATEST)])
    with RawClient(bootstrap) as client:
        (topic,) = client.call(ListOffsetsRequest(-1, level, [wanted]), _LIST_VERSION).topics
    (answer,) = topic.partitions
    assert answer.error_code == ErrorCode.NONE, answer
    return int(answer.offset)


def is_stable(bootstrap: str, spot: Spot) -> bool:
    """Whether no transaction is open in the partition."""
    return end_offset(bootstrap, spot, committed=True) == end_offset(bootstrap, spot, committed=False)


def group_offset(bootstrap: str, group: str, spot: Spot, *, stable: bool = True) -> int | None:
    """What the group goes on at, -1 for nothing.

    None with `stable` while a transaction that is about to change it has not ended; without, what was there before.
    """
    wanted = OffsetFetchRequestGroup(
        group, topics=[OffsetFetchRequestTopics(name=spot[0], partition_indexes=[spot[1]])]
    )
    with RawClient(bootstrap) as client:
        (answer,) = client.call(OffsetFetchRequest(groups=[wanted], require_stable=stable), _FETCH_VERSION).groups
    assert answer.error_code == ErrorCode.NONE, answer
    (partition,) = answer.topics[0].partitions
    if stable and partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return None
    assert partition.error_code == ErrorCode.NONE, partition
    return int(partition.committed_offset)
