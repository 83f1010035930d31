"""One broker over one blocking connection. The protocol is in `kwire_protocol.conversation`.

`call` sends one request and returns its response. `send` and `receive` allow several requests in flight: replies come
in the order of the requests, and are kept until the caller receives them.
"""

from __future__ import annotations

import math
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from kwire_protocol.conversation import Reply, Ticket
from kwire_protocol.messages import APIS
from kwire_protocol.wire import ApiMessage, ProtocolError

from kwire.client.errors import ClientError, ConnectionFailed, NotABroker
from kwire.client.exchange import DEFAULT_CLIENT_ID, DEFAULT_TIMEOUT_S, MAX_REPLY_BYTES, Exchange
from kwire.client.login import LEAST_HANDSHAKE_VERSION, Login, NewExchange
from kwire.client.transport import Address, Connect, Transport, connect_plain_text
from kwire.client.waiting import Clock, SystemClock
from kwire.security.tls.settings import TlsError


class BrokerConnection:
    """A connection to a broker, after ApiVersions. A context manager.

    Raises ClientError if a request fails. After ConnectionFailed and NotABroker the connection is closed, and every
    pending request fails with the same error.
    """

    def __init__(
        self,
        address: Address,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        connect: Connect = connect_plain_text,
        new_exchange: NewExchange | None = None,
        clock: Clock | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        """`timeout_s` applies to connecting, and is the default for each reply.

        new_exchange: begins the authentication that the broker requires (SASL). Raises LoginFailed.
        """
        self._exchange = Exchange(address, client_id=client_id, max_reply_bytes=max_reply_bytes)
        self.name = self._exchange.name
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._replies: dict[Ticket, Any] = {}
        self._new_exchange = new_exchange
        self._login_due_s = math.inf
        """The time at which the client has to re-authenticate."""
        try:
            self._transport: Transport = connect(address, timeout_s)
        except (OSError, ProtocolError, TlsError) as error:
            raise self._exchange.unreached(error) from None
        self._learn_versions()
        if new_exchange is not None:
            self._log_in(new_exchange)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._exchange.is_over

    @property
    def features(self) -> dict[str, int]:
        """The broker's finalized features by name, with their level."""
        return self._exchange.conversation.features

    def close(self) -> None:
        self._end(self._exchange.closed())

    def version_for(self, api_key: int, *, at_least: int = 0, at_most: int | None = None) -> int:
        """Returns an API's newest version that both sides support, within these bounds. Raises VersionNotServed."""
        return self._exchange.version_for(api_key, at_least=at_least, at_most=at_most)

    def call(
        self, request: ApiMessage, *, at_least: int = 0, at_most: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Sends `request` in the newest version that both sides support; returns the response, None if it has none."""
        return self.receive(self.send(request, at_least=at_least, at_most=at_most), timeout_s=timeout_s)

    def send(self, request: ApiMessage, *, at_least: int = 0, at_most: int | None = None) -> Ticket:
        """Sends `request`; `receive` returns its reply. If too many are in flight, reads some replies first."""
        self._exchange.check()
        if self._new_exchange is not None and self._clock.monotonic() >= self._login_due_s:
            self._log_in(self._new_exchange)
        version = self.version_for(request.api_key, at_least=at_least, at_most=at_most)
        deadline_s = self._clock.monotonic() + self._timeout_s
        while not self._exchange.conversation.has_room:
            self._take_reply(APIS[request.api_key].name, deadline_s)
        ticket = self._exchange.send(request, version)
        self._flush(ticket.name, deadline_s)
        return ticket

    def receive(self, ticket: Ticket, *, timeout_s: float | None = None) -> Any:
        """Returns the reply to a request of this connection, once per request; None if the request has no reply."""
        if not ticket.is_answered:
            return None
        deadline_s = self._clock.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while ticket not in self._replies:
            self._take_reply(ticket.name, deadline_s)
        return self._replies.pop(ticket)

    def _learn_versions(self) -> None:
        conversation = self._exchange.conversation
        deadline_s = self._clock.monotonic() + self._timeout_s
        name = conversation.begin().name
        try:
            self._flush(name, deadline_s)
            while conversation.versions is None:
                self._receive_some(name, deadline_s)
                self._next_reply()
                self._flush(name, deadline_s)
        except BaseException:
            self.close()
            raise

    def _log_in(self, new_exchange: NewExchange) -> None:
        self._login_due_s = math.inf
        login = Login(self.name, new_exchange())
        try:
            answer = self.call(login.first(), at_least=LEAST_HANDSHAKE_VERSION)
            while (request := login.following(answer)) is not None:
                answer = self.call(request)
        except BaseException:
            self.close()
            raise
        self._login_due_s = self._clock.monotonic() + login.renewal_ms / 1000

    def _take_reply(self, waiting_for: str, deadline_s: float) -> None:
        """Reads the next reply and keeps it."""
        self._exchange.check()
        while (reply := self._next_reply()) is None:
            self._receive_some(waiting_for, deadline_s)
        self._replies[reply.ticket] = reply.message

    def _next_reply(self) -> Reply | None:
        try:
            return self._exchange.next_reply()
        except NotABroker as failure:
            self._end(failure)
            raise

    def _flush(self, name: str, deadline_s: float) -> None:
        try:
            for piece in self._exchange.to_send():
                self._transport.settimeout(self._left_s(deadline_s))
                self._transport.sendall(piece)
        except OSError as error:
            raise self._unanswered(name, error) from None

    def _receive_some(self, name: str, deadline_s: float) -> None:
        try:
            self._transport.settimeout(self._left_s(deadline_s))
            self._exchange.received(self._transport.recv_into(self._exchange.conversation.writable()))
        except OSError as error:
            raise self._unanswered(name, error) from None

    def _left_s(self, deadline_s: float) -> float:
        left_s = deadline_s - self._clock.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _unanswered(self, name: str, error: OSError) -> ConnectionFailed:
        failure = self._exchange.unanswered(name, error)
        self._end(failure)
        return failure

    def _end(self, failure: ClientError) -> None:
        if self._exchange.end(failure):
            with suppress(OSError):
                self._transport.close()
