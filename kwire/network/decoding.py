"""Decodes a frame into its request and its handler, and caches the result for requests that repeat.

Clients send the same request again and again: consumers request the same offsets after every poll, members of a group
send the same heartbeat, and a producer's requests differ only in their records and in the sizes in front of them. So
the decoded request is cached without what differs (`kwire.handlers.shapes`), and a request with the same bytes is not
decoded again:

    key, version | correlation id | client id ... | size, records | tags, partition ... | size, records | tags
                                    head                            rest                                  rest

The head is the key of the cache; all other bytes except the sizes and the records are compared too.

Connections share the cache (`Shapes`), since many clients send the same requests; each connection stores where the head
of its last request ended. Each API has a cache of its own, so that thousands of members, whose heartbeats are all
different, do not take it from producers. From the cache, a request with records or an offset is a new object each time;
others are shared.

A cached request may have a fast path (`kwire.handlers.fast`), which answers it without decoding it.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from kwire_protocol.headers import REQUEST_START, read_client_id
from kwire_protocol.wire import ProtocolError, Reader

from kwire.handlers.apis import API_VERSIONS, Api, UnsupportedRequest
from kwire.handlers.context import Context, Handler
from kwire.handlers.shapes import SessionFetch, Shape, shape_of, shape_of_produce

MAX_REQUEST_ELEMENTS = 250_000
"""The maximum number of elements in all arrays of a request. The largest real request has every partition of a large
cluster."""

MAX_SHAPE_BYTES = 4096
"""The maximum number of bytes, besides its records, of a request that is cached."""

MAX_BYTES = 8 << 20
"""The size of an API's cache, where each entry counts COST_BYTES besides its bytes. The oldest entry is dropped. It has
room for the heartbeats of about 7,000 members."""

PRODUCE = 0

_HEAD_START = REQUEST_START.size

Decode = Callable[[memoryview], tuple[Handler | None, Any, int]]
"""Takes a frame, and returns what `RequestDecoder.decode` does."""


class ShapesOfApi:
    """The cached requests of one API, by head."""

    def __init__(self) -> None:
        self.by_head: dict[bytes, Shape] = {}
        self.size = 0

    def add(self, head: bytes, shape: Shape) -> None:
        by_head = self.by_head
        if head in by_head:
            self._forget(head)
        by_head[head] = shape
        self.size += shape.size + shape.COST_BYTES
        while self.size > MAX_BYTES:
            self._forget(next(iter(by_head)))

    def _forget(self, head: bytes) -> None:
        shape = self.by_head.pop(head)
        self.size -= shape.size + shape.COST_BYTES


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

    __slots__ = ("_apis", "_context", "_head_stop", "_shapes", "uses_fast_paths")

    def __init__(self, apis: Mapping[int, Api], context: Context, shapes: Shapes) -> None:
        self.uses_fast_paths = True
        """False while requests are charged to quotas."""
        self._apis = apis
        self._context = context
        self._shapes = shapes
        self._head_stop = 0
        """Where the head of the last cached request ended; 0 if there is none yet."""

    def decode(self, frame: memoryview) -> tuple[Handler | None, Any, int]:
        """Returns the handler of a frame's request, the request, and its correlation id.

        The request is None for ApiVersions in a version that is not served. If a fast path has answered the request,
        the handler is None, and the response is in place of the request: a response, a coroutine, or a whole frame,
        which is empty if there is no response.
        Raises ProtocolError, UnsupportedRequest; CloseConnection from a fast path.
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
                context.client_id = shape.client_id
                if self.uses_fast_paths:
                    if shape.is_new:
                        # Only now, since it costs more than to decode a request that may come once.
                        shape.is_new = False
                        shape.answer = None if api.fast_path is None else api.fast_path(shape)
                    if (
                        shape.answer is not None
                        and (response := shape.answer(frame, context, correlation_id)) is not None
                    ):
                        return None, response, correlation_id
                request = shape.read(frame)
                if request is not None:
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
        body_at = reader.pos
        if key == PRODUCE:
            reader = noting = _NotingReader(frame, body_at, MAX_REQUEST_ELEMENTS)
            request = read(reader, version)
            shape = shape_of_produce(frame, noting.noted, request, api, handle, version, context.client_id)
        else:
            request = read(reader, version)
            shape = shape_of(frame, body_at, request, api, handle, version, context.client_id)
        if shape is not None and shape.size <= MAX_SHAPE_BYTES:
            head, shapes = bytes(frame[_HEAD_START : shape.head_stop]), self._shapes[key]
            if isinstance(shape, SessionFetch):
                shape.merge(shapes.by_head.get(head))
            self._head_stop = shape.head_stop
            shapes.add(head, shape)
        return handle, request, correlation_id
