"""Decodes a frame into its request and its handler, and caches the result for requests that repeat.

Clients send the same request again and again: consumers request the same offsets after every poll, members of a group
send the same heartbeat, and a producer's requests differ only in their records and in the sizes in front of them. So
the decoded request is cached without its records, and a request with the same bytes is not decoded again:

    key, version | correlation id | client id ... | size, records | tags, partition ... | size, records | tags
                                    head                            rest                                  rest

The head is the key of the cache; all other bytes except the sizes and the records are compared too. This is exact: a
message is read from its first byte to its last, so equal bytes in front of a field mean that the same field follows.

Connections share the cache (`Shapes`), since many clients send the same requests; each connection stores where the head
of its last request ended. Each API has a cache of its own, so that thousands of members, whose heartbeats are all
different, do not take it from producers. From the cache, a request with records is a new object each time; one without
is shared.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from struct import Struct
from typing import Any

import attrs
from kwire_protocol.headers import REQUEST_START, read_client_id
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.wire import MALFORMED, ProtocolError, Reader, Uuid

from kwire.handlers.apis import API_VERSIONS, Api, Handler, UnsupportedRequest
from kwire.handlers.context import Context

MAX_REQUEST_ELEMENTS = 250_000
"""The maximum number of elements in all arrays of a request. The largest real request has every partition of a large
cluster."""

MAX_SHAPE_BYTES = 4096
"""The maximum number of bytes, besides its records, of a request that is cached."""

MAX_BYTES = 4 << 20
SHAPE_COST_BYTES = 512
"""The size of an API's cache, where each entry counts SHAPE_COST_BYTES besides its bytes. The oldest entry is dropped.
It has room for the heartbeats of about 6,500 members."""

_SIZE = Struct(">i")
_HEAD_START = REQUEST_START.size
_FIRST_FLEXIBLE_PRODUCE = 9


@attrs.frozen(eq=False)
class _Shape:
    """A decoded request. `size` counts the bytes that are compared: the head's and the others."""

    api: Api
    handle: Handler
    version: int
    client_id: str | None
    head_stop: int
    size: int


@attrs.frozen(eq=False)
class WholeRequest(_Shape):
    """A request without records: all of it is its head."""

    request: Any

    def read(self, frame: memoryview) -> Any:
        """Returns the request of a frame that begins with the head, or None if the frame continues differently."""
        return self.request if len(frame) == self.head_stop else None


@attrs.frozen(eq=False)
class ProduceShape(_Shape):
    """A Produce request without its records.

    `topics`: the name, id and partitions of each topic. A partition has its index and the bytes from the end of its
    records to the size of the next partition's records, or to the end of the frame.
    """

    is_flexible: bool
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str, Uuid, list[tuple[int, bytes]]]]

    def read(self, frame: memoryview) -> ProduceRequest | None:
        """Returns the request of a frame that begins with the head, or None if the frame continues differently."""
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


class ShapesOfApi:
    """The cached requests of one API, by head."""

    def __init__(self) -> None:
        self.by_head: dict[bytes, WholeRequest | ProduceShape] = {}
        self.size = 0

    def add(self, head: bytes, shape: WholeRequest | ProduceShape) -> None:
        by_head = self.by_head
        if head in by_head:
            self._forget(head)
        by_head[head] = shape
        self.size += shape.size + SHAPE_COST_BYTES
        while self.size > MAX_BYTES:
            self._forget(next(iter(by_head)))

    def _forget(self, head: bytes) -> None:
        self.size -= self.by_head.pop(head).size + SHAPE_COST_BYTES


class Shapes(defaultdict[int, ShapesOfApi]):
    """The cached requests of all connections of a server, by API key."""

    def __init__(self) -> None:
        super().__init__(ShapesOfApi)


class _NotingReader(Reader):
    """Notes the place of each records field that it reads: where its size begins, and where its records end."""

    __slots__ = ("noted",)

    def __init__(self, buf: memoryview, pos: int, max_elements: int) -> None:
        super().__init__(buf, pos, max_elements)
        self.noted: list[tuple[int, int]] = []

    def nullable_records(self) -> memoryview | None:
        size_at = self.pos
        records = super().nullable_records()
        self.noted.append((size_at, self.pos))
        return records

    def compact_nullable_records(self) -> memoryview | None:
        size_at = self.pos
        records = super().compact_nullable_records()
        self.noted.append((size_at, self.pos))
        return records


class RequestDecoder:
    """Decodes the requests of one connection. Puts the API key, the version and the client id into `context`."""

    __slots__ = ("_apis", "_context", "_head_stop", "_shapes")

    def __init__(self, apis: Mapping[int, Api], context: Context, shapes: Shapes) -> None:
        self._apis = apis
        self._context = context
        self._shapes = shapes
        self._head_stop = 0
        """Where the head of the last cached request ended; 0 if there is none yet."""

    def decode(self, frame: memoryview) -> tuple[Handler, Any, int]:
        """Returns the handler of a frame's request, the request, and its correlation id.

        The request is None for ApiVersions in a version that is not served.
        Raises ProtocolError, UnsupportedRequest.
        """
        context = self._context
        try:
            key, version, correlation_id = REQUEST_START.unpack_from(frame)
        except struct.error:
            raise ProtocolError(f"a request has {len(frame)} bytes, less than its header") from None
        context.api_key, context.api_version = key, version
        api = self._apis.get(key)
        if api is not None and api.repeats:
            shape = self._shapes[key].by_head.get(bytes(frame[_HEAD_START : self._head_stop]))
            if shape is not None and shape.api is api and shape.version == version:
                request = shape.read(frame)
                if request is not None:
                    context.client_id = shape.client_id
                    return shape.handle, request, correlation_id
        reader = Reader(frame, _HEAD_START, MAX_REQUEST_ELEMENTS)
        context.client_id = read_client_id(reader, key, version)
        if api is None or version not in api.versions:
            if api is None or key != API_VERSIONS:
                raise UnsupportedRequest(key, version)
            context.api_version = 0
            return (api.functions or api.load())[1], None, correlation_id
        read, handle = api.functions or api.load()
        if not api.repeats:
            return handle, read(reader, version), correlation_id
        noting = _NotingReader(frame, reader.pos, MAX_REQUEST_ELEMENTS)
        request = read(noting, version)
        shape = self._shape(frame, api, handle, noting, request)
        if shape is not None:
            self._head_stop = shape.head_stop
            self._shapes[key].add(bytes(frame[_HEAD_START : shape.head_stop]), shape)
        return handle, request, correlation_id

    def _shape(
        self, frame: memoryview, api: Api, handle: Handler, reader: _NotingReader, request: Any
    ) -> WholeRequest | ProduceShape | None:
        """Returns the cache entry for a request, or None if it is not cached."""
        context = self._context
        known = api, handle, context.api_version, context.client_id
        size = len(frame)
        if not isinstance(request, ProduceRequest):
            return WholeRequest(*known, size, size, request) if size <= MAX_SHAPE_BYTES else None
        noted = reader.noted
        for size_at, stop in noted:
            size -= stop - size_at
        if not noted or size > MAX_SHAPE_BYTES:
            return None
        rests = iter([bytes(frame[stop:next_at]) for (_, stop), (next_at, _) in pairwise([*noted, (len(frame), 0)])])
        return ProduceShape(
            *known,
            noted[0][0],
            size,
            context.api_version >= _FIRST_FLEXIBLE_PRODUCE,
            request.transactional_id,
            request.acks,
            request.timeout_ms,
            [
                (topic.name, topic.topic_id, [(data.index, next(rests)) for data in topic.partition_data])
                for topic in request.topic_data
            ],
        )
