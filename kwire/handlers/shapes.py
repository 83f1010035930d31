"""The shapes of requests that clients send again and again: decoded requests without the fields that differ each time.

A frame that begins with the head of a shape, and that has the same bytes around those fields, is the same request with
other values there. This is exact: a message is read from its first byte to its last, so equal bytes in front of a field
mean that the same field follows. `kwire.network.decoding` caches shapes; a shape may have a fast path
(`kwire.handlers.fast`).
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.wire import MALFORMED, Reader, Uuid

if TYPE_CHECKING:
    # Not imported by a broker that only serves producers.
    from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    from kwire.handlers.context import Answer, Handler

FETCH = 1
FIRST_FLEXIBLE_PRODUCE = 9
NO_SESSION = 0
FINAL_EPOCH = -1

_SIZE = Struct(">i")
_OFFSET = Struct(">q")


class ServedApi(Protocol):
    """The API of a request (`kwire.handlers.apis.Api`)."""

    key: int


@attrs.define(eq=False)
class Shape:
    """A decoded request. `size` counts the bytes that are compared: the head's and the others."""

    COST_BYTES: ClassVar[int] = 1024
    """The bytes that an entry of the cache counts besides `size`: for the objects, those of its fast path included."""

    api: ServedApi
    handle: Handler
    version: int
    client_id: str | None
    head_stop: int
    """The position at which the head ends, which the correlation id does not belong to."""
    size: int
    answer: Answer | None = attrs.field(default=None, init=False)
    """The fast path of the request, if it has one."""

    def read(self, frame: memoryview) -> Any:
        """Returns the request of a frame that begins with the head, or None if the frame continues differently."""
        raise NotImplementedError


@attrs.define(eq=False)
class WholeRequest(Shape):
    """A request of which nothing differs: all of it is its head."""

    request: Any

    def read(self, frame: memoryview) -> Any:
        return self.request if len(frame) == self.head_stop else None


@attrs.define(eq=False)
class ProduceShape(Shape):
    """A Produce request without its records.

    `topics`: the name, id and partitions of each topic. A partition has its index and the bytes from the end of its
    records to the size of the next partition's records, or to the end of the frame.
    """

    COST_BYTES: ClassVar[int] = 2560

    is_flexible: bool
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str, Uuid, list[tuple[int, bytes]]]]

    def read(self, frame: memoryview) -> ProduceRequest | None:
        position = self.head_stop
        topics = []
        try:
            for name, topic_id, partitions in self.topics:
                data = []
                for index, rest in partitions:
                    if self.is_flexible:
                        # A varint of up to three bytes, less 1. Each step subtracts the continuation bit.
                        size = frame[position] - 1
                        position += 1
                        if size > 126:
                            size += frame[position] - 1 << 7
                            position += 1
                            if size > 16382:
                                size += frame[position] - 1 << 14
                                position += 1
                                if size > 2097150:
                                    return None
                    else:
                        (size,) = _SIZE.unpack_from(frame, position)
                        position += 4
                    if size < 0:
                        return None
                    stop = position + size
                    data.append(PartitionProduceData(index, frame[position:stop]))
                    position = stop + len(rest)
                    if frame[stop:position] != rest:
                        return None
                topics.append(TopicProduceData(name, topic_id, data))
        except MALFORMED:
            return None
        if position != len(frame):
            return None
        return ProduceRequest(self.transactional_id, self.acks, self.timeout_ms, topics)


@attrs.define(eq=False)
class FetchShape(Shape):
    """A Fetch of one partition, without a session: only its fetch offset, which follows the head, differs."""

    COST_BYTES: ClassVar[int] = 2560

    request: FetchRequest
    rest: bytes
    """The bytes from the end of the offset to the end of the frame."""

    @property
    def topic(self) -> FetchTopic:
        return self.request.topics[0]

    @property
    def partition(self) -> FetchPartition:
        return self.request.topics[0].partitions[0]

    def offset_of(self, frame: memoryview) -> int | None:
        """Returns the fetch offset of a frame that begins with the head, or None if the frame continues differently."""
        start = self.head_stop
        if len(frame) != start + 8 + len(self.rest) or frame[start + 8 :] != self.rest:
            return None
        offset: int = _OFFSET.unpack_from(frame, start)[0]
        return offset

    def read(self, frame: memoryview) -> FetchRequest | None:
        offset = self.offset_of(frame)
        return None if offset is None else self.request_at(offset)

    def request_at(self, offset: int) -> FetchRequest:
        """Returns the request with that fetch offset, as an object of its own: its handler may change it."""
        partition = self.partition.replace(fetch_offset=offset)
        return self.request.replace(topics=[self.topic.replace(partitions=[partition])])


Noted = list[tuple[int, int]]
"""Where the size of each records field begins, and where its records end."""


def shape_of_produce(
    frame: memoryview,
    noted: Noted,
    request: ProduceRequest,
    api: ServedApi,
    handle: Handler,
    version: int,
    client_id: str | None,
) -> ProduceShape | None:
    """Returns the shape of a decoded Produce; None if it has no records."""
    if not noted:
        return None
    size = len(frame) - sum(stop - size_at for size_at, stop in noted)
    rests = iter([bytes(frame[stop:next_at]) for (_, stop), (next_at, _) in pairwise([*noted, (len(frame), 0)])])
    return ProduceShape(
        api,
        handle,
        version,
        client_id,
        noted[0][0],
        size,
        version >= FIRST_FLEXIBLE_PRODUCE,
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [
            (topic.name, topic.topic_id, [(data.index, next(rests)) for data in topic.partition_data])
            for topic in request.topic_data
        ],
    )


def shape_of(
    frame: memoryview,
    body_at: int,
    request: Any,
    api: ServedApi,
    handle: Handler,
    version: int,
    client_id: str | None,
) -> Shape | None:
    """Returns the shape of any other decoded request, whose body begins at `body_at`; None for some fetches."""
    size = len(frame)
    if api.key != FETCH:
        return WholeRequest(api, handle, version, client_id, size, size, request)
    if request.session_id != NO_SESSION or request.session_epoch != FINAL_EPOCH:
        return None
    position = _position_of_offset(frame, body_at, request, version)
    if position is None:
        return None
    # A copy, since `kwire.network.throttling` limits the request of a client with a quota.
    request, rest = request.replace(), bytes(frame[position + 8 :])
    return FetchShape(api, handle, version, client_id, position, size - 8, request, rest)


def _position_of_offset(frame: memoryview, body_at: int, request: FetchRequest, version: int) -> int | None:
    """Returns the position of the fetch offset in a Fetch of one partition; None for others.

    It is where another value changes the decoded request's fetch offset, and nothing else.
    """
    if request.forgotten_topics_data or len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    partition = request.topics[0].partitions[0]
    wanted = _OFFSET.pack(partition.fetch_offset)
    other = partition.fetch_offset ^ 0x5A5A5A5A
    body = bytes(frame)
    position = body.find(wanted, body_at)
    while position >= 0:
        changed = memoryview(body[:position] + _OFFSET.pack(other) + body[position + 8 :])
        try:
            again = request.read(Reader(changed, body_at), version)
        except MALFORMED:
            pass
        else:
            read = again.topics[0].partitions[0] if again.topics and again.topics[0].partitions else None
            if read is not None and read.fetch_offset == other:
                read.fetch_offset = partition.fetch_offset
                if again == request:
                    return position
        position = body.find(wanted, position + 1)
    return None
