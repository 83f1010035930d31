"""The client's side of one connection, as a machine: requests in, bytes out; bytes in, replies out. No socket.

    conversation.begin()                       requests the versions that the broker serves
    conversation.data_to_send()                returns the bytes to send; the caller sends them
    conversation.writable(), received(count)   the caller receives into the buffer, and reports the count
    conversation.next_reply()                  the next answer, or None: more must be received first

Rules of Kafka's protocol that it keeps:

* A broker answers the requests of a connection in order, so several may be in flight. The only request without a reply
  is Produce with acks=0. A reply's correlation id must be that of the oldest request without a reply.
* Each API has its own versions. ApiVersions returns those that the broker serves, and `version_for` chooses the newest
  that both sides support. ApiVersions itself is sent in our newest version. A broker without that version replies
  UNSUPPORTED_VERSION in version 0, which every broker has, and usually lists the versions that it supports (KIP-511).
  Then the request is sent again.
* A version that Kafka marks as unstable is chosen only if the caller requests at least that version.

Each reply has its own memory (`frames.ReplyBuffer`). The records of a fetch are a slice of it, and stay valid as long
as they are referenced.

Any mistake of the peer is a ProtocolError, and nothing can be read after it: an impossible size, a wrong correlation
id, an unexpected reply, a message that is too short or too long. The memory for a hostile peer is bounded by
`max_reply_bytes`, and by the bytes that it sent.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any, Final, NamedTuple

import attrs

from kwire_protocol.errors import ErrorCode
from kwire_protocol.frames import ReplyBuffer
from kwire_protocol.headers import (
    API_VERSIONS_KEY,
    RequestHeader,
    read_response_header,
    write_request_header,
)
from kwire_protocol.messages import APIS
from kwire_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire_protocol.wire import ApiMessage, Buffer, ProtocolError, Reader, Writer

DEFAULT_MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
DEFAULT_MAX_IN_FLIGHT: Final = 100

PRODUCE_KEY: Final = 0
_LARGEST_CORRELATION_ID: Final = (1 << 31) - 1
_INT16 = Struct(">h")


class NotServed(Exception):
    """The two sides have no common version of an API. `wanted` are the versions that this side supports."""

    def __init__(self, api_key: int, wanted: range) -> None:
        super().__init__(f"{APIS[api_key].name} {wanted.start} to {wanted.stop - 1}")
        self.api_key = api_key
        self.wanted = wanted


class TooManyInFlight(Exception):
    """`max_in_flight` requests have no reply yet: replies must be read first."""


@attrs.frozen(eq=False)
class Ticket:
    """A request that was sent. Its reply refers to it."""

    correlation_id: int
    api_key: int
    version: int
    is_answered: bool = True
    """False if no reply will come."""

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return APIS[self.api_key].name


class Reply(NamedTuple):
    ticket: Ticket
    message: Any
    """The response: the generated class of the ticket's API."""


def encode_request(request: ApiMessage, version: int, *, correlation_id: int, client_id: str | None) -> bytes:
    """Returns the frame of a request. Raises UnsupportedField, or ValueError, if this version cannot represent it."""
    return _written(request, version, correlation_id, client_id).getvalue()


def _written(request: ApiMessage, version: int, correlation_id: int, client_id: str | None) -> Writer:
    writer = Writer()
    writer.begin_frame()
    write_request_header(writer, RequestHeader(request.api_key, version, correlation_id, client_id))
    request.write(writer, version)
    writer.end_frame()
    return writer


def decode_reply(frame: Buffer, api_key: int, version: int) -> tuple[int, Any]:
    """Returns correlation id and message of a reply without its size. Raises ProtocolError for surplus bytes."""
    reader = Reader(frame)
    correlation_id = read_response_header(reader, api_key, version)
    return correlation_id, _read_message(reader, api_key, version)


def _read_message(reader: Reader, api_key: int, version: int) -> Any:
    message = APIS[api_key].response_class.read(reader, version)
    if reader.remaining:
        raise ProtocolError(f"{reader.remaining} bytes left over behind a reply to {APIS[api_key].name} {version}")
    return message


class Conversation:
    """The requests and replies of one connection. Not to be used further after a ProtocolError.

    client_id: the name of this client in the broker's logs, metrics and quotas.
    software, software_version: sent with ApiVersions; letters, digits, dots and dashes only (KIP-511).
    max_reply_bytes: a larger reply is a ProtocolError.
    max_in_flight: the maximum number of requests without a reply.
    """

    def __init__(
        self,
        *,
        client_id: str | None = "kwire",
        software: str = "kwire",
        software_version: str = "0",
        max_reply_bytes: int = DEFAULT_MAX_REPLY_BYTES,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        first_correlation_id: int = 1,
    ) -> None:
        self.versions: dict[int, range] | None = None
        """The versions that the broker serves, by API key; None until its reply has arrived."""
        self.features: dict[str, int] = {}
        """The broker's finalized features by name, with their level: `transaction.version` and the like (KIP-584)."""
        self._client_id = client_id
        self._software = software, software_version
        self._max_in_flight = max_in_flight
        self._next_correlation_id = first_correlation_id
        self._in_flight: deque[Ticket] = deque()
        self._outgoing: list[Buffer] = []
        self._buffer = ReplyBuffer(max_reply_bytes)
        self._negotiating: Ticket | None = None
        self._broken: str | None = None

    @property
    def in_flight(self) -> int:
        """The number of requests whose replies have not been read."""
        return len(self._in_flight)

    @property
    def has_room(self) -> bool:
        """True if another request may be sent."""
        return len(self._in_flight) < self._max_in_flight

    @property
    def held_bytes(self) -> int:
        """The memory in bytes for replies that have arrived, or are arriving, and have not been read."""
        return self._buffer.capacity

    # Sending

    def begin(self) -> Ticket:
        """Requests the broker's versions. `versions` has them as soon as `next_reply` has read the reply."""
        self._negotiating = self._request_versions(ApiVersionsRequest.versions.stop - 1)
        return self._negotiating

    def version_for(self, api_key: int, *, at_least: int = 0, at_most: int | None = None) -> int:
        """The newest version that both sides support, within these bounds. Raises NotServed if there is none.

        Before the broker's versions have arrived, it always raises NotServed.
        """
        api = APIS[api_key]
        newest = api.max_version
        if api.latest_version_unstable and at_least < newest:
            newest -= 1
        if at_most is not None:
            newest = min(newest, at_most)
        oldest = max(api.min_version, at_least)
        served = (self.versions or {}).get(api_key, range(0))
        version = min(newest, served.stop - 1)
        if version < max(oldest, served.start):
            raise NotServed(api_key, range(oldest, newest + 1))
        return version

    def send(self, request: ApiMessage, version: int) -> Ticket:
        """Adds a request to the bytes of `data_to_send`.

        Raises TooManyInFlight; UnsupportedField, or ValueError, for a request that this version cannot represent: then
        nothing was sent.
        """
        if not self.has_room:
            raise TooManyInFlight(f"{len(self._in_flight)} requests have no reply yet")
        correlation_id = self._next_correlation_id
        buffers = _written(request, version, correlation_id, self._client_id).buffers()
        has_reply = request.api_key != PRODUCE_KEY or getattr(request, "acks", None) != 0
        ticket = Ticket(correlation_id, request.api_key, version, has_reply)
        self._next_correlation_id = 0 if correlation_id == _LARGEST_CORRELATION_ID else correlation_id + 1
        self._outgoing += buffers
        if has_reply:
            self._in_flight.append(ticket)
        return ticket

    def data_to_send(self) -> list[Buffer]:
        """Returns the bytes to be sent now, in order; each is returned once."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    # Receiving

    def writable(self) -> memoryview:
        """The buffer to receive into."""
        return self._buffer.writable()

    def received(self, count: int) -> None:
        """Called after `count` bytes were received into the buffer from `writable`."""
        self._buffer.received(count)

    def next_reply(self) -> Reply | None:
        """Returns the reply to the oldest request without one, or None if more must be received. Raises ProtocolError.

        The reply to `begin` is consumed here, and not returned. If it causes another request, `data_to_send` has bytes
        again.
        """
        if self._broken is not None:
            raise ProtocolError(self._broken)
        try:
            while (frame := self._buffer.next_frame()) is not None:
                reply = self._read_reply(frame)
                if reply.ticket is not self._negotiating:
                    return reply
                self._learn_versions(reply)
        except ProtocolError as error:
            self._broken = str(error)
            raise
        return None

    def _read_reply(self, frame: memoryview) -> Reply:
        if not self._in_flight:
            raise ProtocolError(f"a reply of {len(frame)} bytes to no request that was sent")
        ticket = self._in_flight[0]
        api_key, version = ticket.api_key, ticket.version
        reader = Reader(frame)
        correlation_id = read_response_header(reader, api_key, version)
        if correlation_id != ticket.correlation_id:
            raise ProtocolError(f"a reply to request {correlation_id}, not to {ticket.correlation_id} ({ticket.name})")
        if api_key == API_VERSIONS_KEY and reader.remaining >= _INT16.size:
            (code,) = _INT16.unpack_from(frame, reader.pos)
            if code == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
        message = _read_message(reader, api_key, version)
        self._in_flight.popleft()
        return Reply(ticket, message)

    # Versions

    def _request_versions(self, version: int) -> Ticket:
        about = self._software if version >= 3 else ("", "")
        return self.send(ApiVersionsRequest(*about), version)

    def _learn_versions(self, reply: Reply) -> None:
        response: ApiVersionsResponse = reply.message
        served = {it.api_key: range(it.min_version, it.max_version + 1) for it in response.api_keys}
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and reply.ticket.version > 0:
            newest = served.get(API_VERSIONS_KEY, range(1)).stop - 1
            # The next version is always lower, so this ends with any reply.
            self._negotiating = self._request_versions(max(0, min(newest, reply.ticket.version - 1)))
            return
        if response.error_code:
            raise ProtocolError(f"it does not return its versions: error {response.error_code}")
        self._negotiating = None
        self.versions = served
        self.features = {it.name: it.max_version_level for it in response.finalized_features}
