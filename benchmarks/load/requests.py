"""Requests as frames: encoded once, to be sent many times.

`kwire_protocol` encodes them, in the last versions that name topics (a topic's id would have to be requested first).
What a load sends over and over is copied and given its correlation ids here, before anything is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from kwire_protocol.conversation import Conversation, decode_reply, encode_request
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import ApiMessage, Buffer

CLIENT_ID = "kwire-bench"
# By API key.
VERSIONS = {0: 12, 1: 12, 2: 9, 3: 12, 8: 7, 10: 3, 11: 3, 12: 3, 13: 3, 14: 3, 16: 4, 17: 1}
VERSIONS |= {18: 3, 19: 7, 20: 5, 22: 5, 26: 5, 36: 2, 37: 3, 43: 2, 44: 1, 51: 0}
VERSIONS |= {68: 1, 76: 1, 78: 2, 79: 2, 83: 0, 85: 1}
LATEST = -1


def encode(request: ApiMessage, correlation_id: int = 0) -> bytes:
    """A frame: size, header, request."""
    return encode_request(request, VERSIONS[request.api_key], correlation_id=correlation_id, client_id=CLIENT_ID)


def decode(answer: Buffer, api_key: int) -> Any:
    """The message in an answer, whose size has been taken off."""
    return decode_reply(answer, api_key, VERSIONS[api_key])[1]


def send(conversation: Conversation, request: ApiMessage) -> bytes:
    """Adds `request` to a conversation, and returns the bytes to send."""
    conversation.send(request, VERSIONS[request.api_key])
    return b"".join(conversation.data_to_send())


def numbered(frames: Iterable[bytes]) -> list[bytes]:
    """The frames with 0, 1, 2, ... as correlation ids."""
    return [frame[:8] + number.to_bytes(4, "big") + frame[12:] for number, frame in enumerate(frames)]


def value_batch(count: int, value_bytes: int, *, transactional: bool = False) -> bytes:
    """A batch of records without keys, stamped with the present. The values are letters.

    A transactional one is the first of its producer (sequence 0), which is still to be written into it.
    """
    value = bytes(65 + place * 7919 % 26 for place in range(value_bytes))
    now_ms = time.time_ns() // 1_000_000
    records = (Record(value=value, timestamp=now_ms) for _ in range(count))
    if transactional:
        return build_batch(records, producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
    return build_batch(records)


def keyed_batch(keys: Iterable[bytes], value_bytes: int) -> bytes:
    """A batch of a record for each key, stamped with the present."""
    value = bytes(65 + place * 7919 % 26 for place in range(value_bytes))
    now_ms = time.time_ns() // 1_000_000
    return build_batch([Record(key=key, value=value, timestamp=now_ms) for key in keys])


def produce(topic: str, partitions: Iterable[int], batch: bytes, transactional_id: str | None = None) -> bytes:
    """The same batch to each of the partitions, acks=all."""
    data = [PartitionProduceData(partition, batch) for partition in partitions]
    topics = [TopicProduceData(topic, partition_data=data)]
    return encode(ProduceRequest(transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics))


def fetch(topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 500) -> bytes:
    """Returns a Fetch of one partition, outside of any session."""
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes)
    request.topics = [FetchTopic(topic, partitions=[wanted])]
    return encode(request)


def list_offsets(topics: Mapping[str, Iterable[int]], timestamp: int = LATEST) -> bytes:
    """The offsets of `timestamp` in the partitions of each topic."""
    requested = [
        ListOffsetsTopic(name, [ListOffsetsPartition(partition, timestamp=timestamp) for partition in partitions])
        for name, partitions in topics.items()
    ]
    return encode(ListOffsetsRequest(replica_id=-1, topics=requested))


def api_versions() -> bytes:
    return encode(ApiVersionsRequest(CLIENT_ID, "1"))
