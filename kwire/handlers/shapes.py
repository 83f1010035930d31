"""The shapes of requests that clients send again and again: decoded requests without the fields that differ each time.

A frame that begins with the head of a shape, and that has the same bytes around those fields, is the same request with
other values there. This is exact: a message is read from its first byte to its last, so equal bytes in front of a field
mean that the same field follows. `kwire.network.decoding` caches shapes; a shape may have a fast path
(`kwire.handlers.fast`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.wire import MALFORMED, ProtocolError, Reader, Uuid

if TYPE_CHECKING:
    # Not imported by a broker that only serves producers.
    from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    from kwire.handlers.context import Answer, Handler

FETCH = 1
FIRST_FLEXIBLE_PRODUCE = 9
NO_SESSION = 0
FINAL_EPOCH, INITIAL_EPOCH = -1, 0

MOST_TRIED = 16
"""The maximum number of positions of the same bytes at which a field of a Fetch is looked for."""

_SIZE = Struct(">i")
_EPOCH = Struct(">i")
_OFFSET = Struct(">q")


class ServedApi(Protocol):
    """The API of a request (`kwire.handlers.apis.Api`)."""

    key: int


@attrs.define(eq=False)
class Shape(ABC):
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
    is_new: bool = attrs.field(default=True, init=False)
    """True until the request comes for the second time."""
    answer: Answer | None = attrs.field(default=None, init=False)
    """The fast path of the request, if it has one, and the request is not new."""

    @abstractmethod
    def read(self, frame: memoryview) -> Any:
        """Returns the request of a frame that begins with the head, or None if the frame continues differently."""


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


@attrs.frozen
class SessionForm:
    """A form of the requests that continue a session: with one partition, or with none.

    `between` are the bytes from the end of the session epoch to the fetch offset, or to the end of the frame, and
    `rest` those behind the offset. Without a partition `offset_at` is 0.
    """

    request: FetchRequest
    offset_at: int
    between: bytes
    rest: bytes

    def request_at(self, session_epoch: int, offset: int) -> FetchRequest:
        """Returns the request with these values, as an object of its own."""
        request = self.request.replace(session_epoch=session_epoch)
        for topic in request.topics:
            [partition] = topic.partitions
            request.topics = [topic.replace(partitions=[partition.replace(fetch_offset=offset)])]
        return request


@attrs.define(eq=False)
class SessionFetch(Shape):
    """The Fetches that continue a session: the session epoch, which follows the head, and the fetch offset differ.

    `forms` has the forms of these requests, by the size of the frame: all have the same head.
    """

    COST_BYTES: ClassVar[int] = 4096
    MOST_FORMS: ClassVar[int] = 4

    forms: dict[int, SessionForm]

    def merge(self, known: Shape | None) -> None:
        """Adds the forms of an earlier shape with the same head."""
        if (
            type(known) is SessionFetch
            and known.api is self.api
            and known.version == self.version
            and len(known.forms) < self.MOST_FORMS
        ):
            self.forms = {**known.forms, **self.forms}

    def values_of(self, form: SessionForm, frame: memoryview) -> tuple[int, int] | None:
        """Returns session epoch and fetch offset of a frame in that form; None if it continues differently."""
        epoch_at, offset_at = self.head_stop, form.offset_at
        if not offset_at:
            if frame[epoch_at + 4 :] != form.between:
                return None
            return _EPOCH.unpack_from(frame, epoch_at)[0], 0
        if frame[epoch_at + 4 : offset_at] != form.between or frame[offset_at + 8 :] != form.rest:
            return None
        return _EPOCH.unpack_from(frame, epoch_at)[0], _OFFSET.unpack_from(frame, offset_at)[0]

    def read(self, frame: memoryview) -> FetchRequest | None:
        form = self.forms.get(len(frame))
        if form is None:
            return None
        values = self.values_of(form, frame)
        return None if values is None else form.request_at(*values)


Noted = list[tuple[int, int]]
"""The positions where the size of each records field begins, and where its records end."""


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
    if (
        request.forgotten_topics_data
        or len(request.topics) > 1
        or any(len(it.partitions) != 1 for it in request.topics)
    ):
        return None
    find = partial(_position_of, frame, body_at, request, version)
    # A copy, since `kwire.network.throttling` limits the request of a client with a quota.
    kept = request.replace()
    offset_at, between, rest = 0, b"", b""
    if request.topics:
        [partition] = request.topics[0].partitions
        other = partition.fetch_offset ^ 0x5A5A5A5A
        changed = request.topics[0].replace(partitions=[partition.replace(fetch_offset=other)])
        found = find(_OFFSET.pack(partition.fetch_offset), _OFFSET.pack(other), request.replace(topics=[changed]))
        if found is None:
            return None
        offset_at, rest = found, bytes(frame[found + 8 :])
    if request.session_id == NO_SESSION and request.session_epoch == FINAL_EPOCH and request.topics:
        return FetchShape(api, handle, version, client_id, offset_at, size - 8, kept, rest)
    if request.session_epoch <= INITIAL_EPOCH:
        return None
    other = request.session_epoch ^ 0x5A5A5A5A
    epoch_at = find(_EPOCH.pack(request.session_epoch), _EPOCH.pack(other), request.replace(session_epoch=other))
    if epoch_at is None:
        return None
    between = bytes(frame[epoch_at + 4 : offset_at or size])
    form = SessionForm(kept, offset_at, between, rest)
    return SessionFetch(api, handle, version, client_id, epoch_at, size, {size: form})


def _position_of(
    frame: memoryview, body_at: int, request: FetchRequest, version: int, wanted: bytes, other: bytes, expected: Any
) -> int | None:
    """Returns the position of a field in a Fetch: where `other` in place of `wanted` makes it the expected request.

    None if it is not among the first MOST_TRIED: a client may send a text that is full of such bytes.
    """
    body, position = bytes(frame), body_at - 1
    for _ in range(MOST_TRIED):
        position = body.find(wanted, position + 1)
        if position < 0:
            break
        changed = memoryview(body[:position] + other + body[position + len(wanted) :])
        with suppress(ProtocolError):
            if request.read(Reader(changed, body_at), version) == expected:
                return position
    return None
