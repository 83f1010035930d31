"""One broker over one connection, asked and waited for. The protocol is in `kwire_protocol.conversation`.

`call` is for whoever wants one answer. `send` and `receive` let several requests be on their way: replies come in the
order of the requests, and a reply that is asked for later is kept until then.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from kwire_protocol.conversation import DEFAULT_MAX_REPLY_BYTES, Conversation, NotServed, Ticket
from kwire_protocol.messages import APIS
from kwire_protocol.wire import ApiMessage, Buffer, ProtocolError, Region

import kwire
from kwire.client.errors import ClientError, ConnectionFailed, NotABroker, VersionNotServed
from kwire.client.transport import Address, Connect, Transport, connect_plain_text, receive_some
from kwire.client.waiting import Clock, SystemClock

DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_CLIENT_ID: Final = "kwire"
MAX_REPLY_BYTES: Final = DEFAULT_MAX_REPLY_BYTES
_JOINED_BYTES: Final = 64 * 1024  # up to here a copy costs less than another system call


class BrokerConnection:
    """A connection to a broker that has told its versions. A context manager.

    Raises ClientError for whatever the broker does not do. After ConnectionFailed and NotABroker the connection is
    closed, and every request that waits for a reply fails the same way.
    """

    def __init__(
        self,
        address: Address,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        connect: Connect = connect_plain_text,
        clock: Clock | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """`timeout_s` is for connecting, and for each reply unless `receive` is told otherwise."""
        self.name = f"{address[0]}:{address[1]}"
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._conversation = Conversation(
            client_id=client_id, software_version=kwire.__version__, max_reply_bytes=max_reply_bytes
        )
        self._replies: dict[Ticket, Any] = {}
        self._failure: ClientError | None = None
        try:
            self._transport: Transport = connect(address, timeout_s)
        except OSError as error:
            raise ConnectionFailed(f"cannot reach {self.name}: {_reason(error)}") from None
        self._learn_versions()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    @property
    def features(self) -> dict[str, int]:
        """The broker's finalized features by name, with their level."""
        return self._conversation.features

    def close(self) -> None:
        self._end(ConnectionFailed(f"the connection to {self.name} is closed"))

    def version_for(self, api_key: int, *, at_least: int = 0, at_most: int | None = None) -> int:
        """The newest version of an API that both know, within these bounds. Raises VersionNotServed."""
        try:
            return self._conversation.version_for(api_key, at_least=at_least, at_most=at_most)
        except NotServed as error:
            raise VersionNotServed(
                f"the broker at {self.name} does not serve {error}: it is too old, or too new, for this"
            ) from None

    def call(
        self, request: ApiMessage, *, at_least: int = 0, at_most: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """The answer to `request`, in the newest version that both know. None for one that has no answer."""
        return self.receive(self.send(request, at_least=at_least, at_most=at_most), timeout_s=timeout_s)

    def send(self, request: ApiMessage, *, at_least: int = 0, at_most: int | None = None) -> Ticket:
        """Sends `request`; `receive` waits for its answer. Where too many are on their way, some replies come first."""
        self._check()
        version = self.version_for(request.api_key, at_least=at_least, at_most=at_most)
        deadline_s = self._clock.monotonic() + self._timeout_s
        while not self._conversation.has_room:
            self._take_reply(APIS[request.api_key].name, deadline_s)
        ticket = self._conversation.send(request, version)
        self._flush(ticket.name, deadline_s)
        return ticket

    def receive(self, ticket: Ticket, *, timeout_s: float | None = None) -> Any:
        """The answer to a request of this connection, to be asked for once; None for one that has no answer."""
        if not ticket.is_answered:
            return None
        deadline_s = self._clock.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while ticket not in self._replies:
            self._take_reply(ticket.name, deadline_s)
        return self._replies.pop(ticket)

    def _learn_versions(self) -> None:
        deadline_s = self._clock.monotonic() + self._timeout_s
        name = self._conversation.begin().name
        try:
            self._flush(name, deadline_s)
            while self._conversation.versions is None:
                self._receive_some(name, deadline_s)
                self._next_reply()
                self._flush(name, deadline_s)
        except BaseException:
            self.close()
            raise

    def _take_reply(self, waiting_for: str, deadline_s: float) -> None:
        """Adds the next reply to those that have come."""
        self._check()
        while (reply := self._next_reply()) is None:
            self._receive_some(waiting_for, deadline_s)
        self._replies[reply.ticket] = reply.message

    def _next_reply(self) -> Any:
        try:
            return self._conversation.next_reply()
        except ProtocolError as error:
            failure = NotABroker(f"what answers at {self.name} is no Kafka broker in plain text: {error}")
            self._end(failure)
            raise failure from None

    def _flush(self, name: str, deadline_s: float) -> None:
        pieces = self._conversation.data_to_send()
        if not pieces:
            return
        try:
            for piece in _joined(pieces):
                self._transport.settimeout(self._left_s(deadline_s))
                self._transport.sendall(piece)
        except OSError as error:
            raise self._unanswered(name, error) from None

    def _receive_some(self, name: str, deadline_s: float) -> None:
        try:
            self._transport.settimeout(self._left_s(deadline_s))
            receive_some(self._transport, self._conversation)
        except OSError as error:
            raise self._unanswered(name, error) from None

    def _left_s(self, deadline_s: float) -> float:
        left_s = deadline_s - self._clock.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _unanswered(self, name: str, error: OSError) -> ConnectionFailed:
        failure = ConnectionFailed(f"the broker at {self.name} did not answer {name}: {_reason(error)}")
        self._end(failure)
        return failure

    def _check(self) -> None:
        if self._failure is not None:
            # A new exception each time: one that was raised has a traceback already.
            raise type(self._failure)(self._failure.message)

    def _end(self, failure: ClientError) -> None:
        if self._failure is None:
            self._failure = failure
            with suppress(OSError):
                self._transport.close()


def _joined(pieces: list[Buffer | Region]) -> list[Buffer]:
    """Pieces of memory, as few as is good."""
    buffers = [piece for piece in pieces if isinstance(piece, Buffer)]
    assert len(buffers) == len(pieces), "a client sends no regions of files"
    if len(buffers) > 1 and sum(map(len, buffers)) <= _JOINED_BYTES:
        return [b"".join(buffers)]
    return buffers


def _reason(error: OSError) -> str:
    return "it took too long" if isinstance(error, TimeoutError) else error.strerror or str(error)
