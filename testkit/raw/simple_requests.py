"""Requests to topic `t` and group `g` that many tests send, with everything defaulted that they do not care about."""

from __future__ import annotations

from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch


def produce(*values: bytes, topic: str = "t", acks: int = 1, index: int = 0) -> ProduceRequest:
    batch = build_batch([Record(timestamp=1000, value=value) for value in values])
    return ProduceRequest(
        None, acks, 1000, [TopicProduceData(topic, partition_data=[PartitionProduceData(index, batch)])]
    )


def fetch(offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 26) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic("t", partitions=[FetchPartition(0, -1, offset, partition_max_bytes=max_bytes)])],
    )


def list_end() -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])])


def find_coordinator() -> FindCoordinatorRequest:
    """Looks for the coordinator of the group `g`, in v0; creates the topic of groups."""
    return FindCoordinatorRequest(key="g")


def join(member_id: str = "", *, rebalance_timeout_ms: int = 60_000) -> JoinGroupRequest:
    """Joins in version 3, in which a member needs no id."""
    protocols = [JoinGroupRequestProtocol("range", b"")]
    return JoinGroupRequest("g", 10_000, rebalance_timeout_ms, member_id, None, "consumer", protocols)
