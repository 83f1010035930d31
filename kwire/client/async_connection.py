"""One broker over one connection, for trio tasks. Many tasks may call it at the same time.

    async with await AsyncBrokerConnection.open(("127.0.0.1", 9092), timeout_s=5, connect=connect) as connection:
        response = await connection.call(MetadataRequest())

Callers may rely on this:

* Requests are sent in the order of the calls, each completely before the next begins, and several may be in flight.
  Each `call` returns the response to its own request.
* A cancelled `call` leaves the connection usable, or closes it. Before its turn to send, nothing has happened. While it
  sends, half a request may be out, so the connection is closed. While it waits, the connection stays open: the broker
  may carry out the request, and the response is dropped.
* Every `call` ends with its response, or after `timeout_s` with ConnectionFailed. That closes the connection, since
  later requests would be answered later still. So use a separate connection for requests that may take long, such as a
  Fetch that waits.
* A connection that fails is closed. All pending and later calls raise. It does not reconnect, and never sends a request
  twice: only the caller can decide if that is safe.
* Memory: one request at a time is encoded, and one response received, of at most `max_reply_bytes`. Responses that no
  caller waits for are not read ahead.

There is no background task. Callers receive in the order of their requests, which is the order of the responses. So a
broker that hangs up is noticed only by the next `call`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Protocol, Self

import trio
from kwire_protocol.conversation import Reply, Ticket
from kwire_protocol.messages import APIS
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire_protocol.wire import ApiMessage, Buffer, ProtocolError

from kwire.client.errors import ClientError, ConnectionFailed, NotABroker
from kwire.client.exchange import DEFAULT_CLIENT_ID, DEFAULT_TIMEOUT_S, MAX_REPLY_BYTES, Exchange, hung_up
from kwire.client.login import LEAST_HANDSHAKE_VERSION, Login, LoginFailed, NewExchange
from kwire.client.transport import Address
from kwire.security.tls.settings import TlsError


class Stream(Protocol):
    """The methods of a connection that this module uses. They raise OSError, or an error of trio's streams."""

    async def send_all(self, data: Buffer, /) -> None: ...

    async def receive_into(self, room: memoryview, /) -> int:
        """Returns the number of bytes received; 0 if the peer has closed the connection."""
        ...

    def close(self) -> None:
        """Closes at once. Pending calls raise."""


AsyncConnect = Callable[[Address], Awaitable[Stream]]
"""Address to a stream that is ready for Kafka's requests. Raises the errors of `kwire.client.transport.Connect`."""

_LEAST_VERSIONS: Final = {SaslHandshakeRequest.api_key: LEAST_HANDSHAKE_VERSION}


class AsyncBrokerConnection:
    """A connection to a broker, after ApiVersions. `async with` closes it at the end.

    Raises ClientError if a request fails; ConnectionFailed and NotABroker close the connection.
    """

    def __init__(
        self, stream: Stream, exchange: Exchange, timeout_s: float, new_exchange: NewExchange | None = None
    ) -> None:
        """See `open`."""
        self.name = exchange.name
        self._stream = stream
        self._exchange = exchange
        self._conversation = exchange.conversation
        self._timeout_s = timeout_s
        # trio's locks are fair, so that the caller that sent first receives first.
        self._sending = trio.Lock()
        self._receiving = trio.Lock()
        self._logging_in = trio.Lock()
        self._new_exchange = new_exchange
        self._login_due = math.inf
        """The time, by trio's clock, at which the client has to re-authenticate."""
        self._waiting = 0
        """The number of callers that wait for a response. All other requests in flight are of cancelled callers."""

    @classmethod
    async def open(
        cls,
        address: Address,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        connect: AsyncConnect,
        new_exchange: NewExchange | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> Self:
        """Connects, requests the broker's versions, and authenticates if there is a `new_exchange` (SASL).

        Raises LoginFailed, too. `timeout_s` covers all of that together, and is the default for each `call`.
        """
        exchange = Exchange(address, client_id=client_id, max_reply_bytes=max_reply_bytes)
        failure = exchange.unreached(TimeoutError())
        with trio.move_on_after(timeout_s):
            try:
                stream = await connect(address)
            except (OSError, ProtocolError, TlsError) as error:
                raise exchange.unreached(error) from None
            connection = cls(stream, exchange, timeout_s, new_exchange)
            failure = exchange.unanswered(APIS[ApiVersionsRequest.api_key].name, TimeoutError())
            try:
                await connection._learn_versions()
                if new_exchange is not None:
                    await connection._log_in(new_exchange)
            except BaseException:
                connection.close()
                raise
            return connection
        raise failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection at once. Pending calls raise."""
        self._end(self._exchange.closed())

    @property
    def is_closed(self) -> bool:
        return self._exchange.is_over

    @property
    def features(self) -> dict[str, int]:
        """The broker's finalized features by name, with their level."""
        return self._conversation.features

    def version_for(self, api_key: int, *, at_least: int = 0, at_most: int | None = None) -> int:
        """Returns an API's newest version that both sides support, within these bounds. Raises VersionNotServed."""
        return self._exchange.version_for(api_key, at_least=at_least, at_most=at_most)

    async def call(
        self, request: ApiMessage, *, at_least: int = 0, at_most: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Sends `request` in the newest version that both sides support, and returns the response; None if it has none.

        Raises ClientError; UnsupportedField or ValueError, with nothing sent, for a request that the version cannot
        express. `timeout_s` covers everything, including the wait while other callers send.
        """
        version = self.version_for(request.api_key, at_least=at_least, at_most=at_most)
        with trio.move_on_after(self._timeout_s if timeout_s is None else timeout_s):
            try:
                if self._new_exchange is not None:
                    await self._log_in_if_due(self._new_exchange)
                ticket = await self._send(request, version)
                return await self._answer(ticket) if ticket.is_answered else None
            except (ConnectionFailed, LoginFailed, NotABroker) as failure:
                self._end(failure)
                raise
        too_late = self._exchange.unanswered(APIS[request.api_key].name, TimeoutError())
        self._end(too_late)
        raise too_late

    async def _learn_versions(self) -> None:
        name = self._conversation.begin().name
        await self._flush(name)
        while self._conversation.versions is None:
            await self._receive_some(name)
            self._exchange.next_reply()
            await self._flush(name)

    async def _log_in(self, new_exchange: NewExchange) -> None:
        login = Login(self.name, new_exchange())
        request: ApiMessage | None = login.first()
        while request is not None:
            version = self.version_for(request.api_key, at_least=_LEAST_VERSIONS.get(request.api_key, 0))
            request = login.following(await self._answer(await self._send(request, version)))
        self._login_due = trio.current_time() + login.renewal_ms / 1000

    async def _log_in_if_due(self, new_exchange: NewExchange) -> None:
        """Re-authenticates if that is due. One caller does so, and the others wait."""
        if trio.current_time() >= self._login_due:
            async with self._logging_in:
                if trio.current_time() >= self._login_due:
                    await self._log_in(new_exchange)

    async def _send(self, request: ApiMessage, version: int) -> Ticket:
        async with self._sending:
            await self._drop_abandoned_answers(APIS[request.api_key].name)
            await trio.lowlevel.checkpoint_if_cancelled()  # nothing has been sent yet
            ticket = self._exchange.send(request, version)
            try:
                await self._flush(ticket.name)
            except BaseException as error:  # a part of it may have been sent
                cancelled = ConnectionFailed(f"a request to {self.name} was cancelled half way")
                self._end(error if isinstance(error, ClientError) else cancelled)
                raise
        return ticket

    async def _drop_abandoned_answers(self, name: str) -> None:
        """Reads the responses to cancelled requests: a broker that cannot send stops reading. Also makes room."""
        if self._conversation.in_flight > self._waiting or not self._conversation.has_room:
            async with self._receiving:  # after all callers that wait for a response
                while self._conversation.in_flight:
                    await self._next_reply(name)

    async def _answer(self, ticket: Ticket) -> Any:
        self._waiting += 1
        try:
            async with self._receiving:
                # Responses before its own belong to requests that were cancelled.
                while (reply := await self._next_reply(ticket.name)).ticket is not ticket:
                    pass
                return reply.message
        finally:
            self._waiting -= 1

    async def _next_reply(self, name: str) -> Reply:
        while (reply := self._exchange.next_reply()) is None:
            await self._receive_some(name)
        return reply

    async def _receive_some(self, name: str) -> None:
        room = self._conversation.writable()
        with self._errors(name):
            self._exchange.received(await self._stream.receive_into(room))

    async def _flush(self, name: str) -> None:
        with self._errors(name):
            for piece in self._exchange.to_send():
                await self._stream.send_all(piece)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turns the stream's errors into ConnectionFailed, or into the reason why this side closed the connection."""
        try:
            yield
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._exchange.check()
            reason = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(reason, OSError):
                reason = hung_up()
            raise self._exchange.unanswered(name, reason) from None

    def _end(self, failure: ClientError) -> None:
        if self._exchange.end(failure):
            self._stream.close()
