"""A connection to a leader: one request at a time, over a transport whose socket the broker's loop watches.

It has no task. The loop calls it when the socket is ready, or when its timer is due, as it calls the connections of
clients. A task of trio, which a fetch would wake twice, would cost several times as much CPU for each fetch. Only
connecting is a task, because it must resolve a name first, and is rare.

Received records are slices of the reply's own memory, and are written to the log from there.
"""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs
import trio
from kwire_protocol.conversation import Conversation, NotServed, Ticket
from kwire_protocol.messages.fetch import FetchRequest
from kwire_protocol.messages.list_offsets import ListOffsetsRequest
from kwire_protocol.wire import ApiMessage, ProtocolError

from kwire.client.exchange import reason_of
from kwire.client.login import LEAST_HANDSHAKE_VERSION, Login, LoginFailed, NewExchange
from kwire.client.transport import Address
from kwire.peers.connecting import Connect
from kwire.replication.fetching import (
    LEAST_FETCH_VERSION,
    LEAST_LIST_OFFSETS_VERSION,
    MOST_FETCH_VERSION,
    Fetcher,
)
from kwire.runtime.poll import READ, WRITE
from kwire.runtime.transport import Transport
from kwire.security.tls.settings import TlsError

log = logging.getLogger(__name__)

REPLY_OVERHEAD_BYTES = 64 * 1024 * 1024
"""A reply may be larger than replica.fetch.response.max.bytes by its first batch, and by its other fields."""


class Sockets(Protocol):
    """The broker's loop; `kwire.runtime.processor.Processor` is one. Times are in seconds."""

    now: float

    def add(self, sock: socket.socket, on_ready: Callable[[int], None], /) -> None: ...

    def watch(self, sock: socket.socket, interest: int, /) -> None: ...

    def remove(self, sock: socket.socket, /) -> None: ...

    def start_timer(self, timer: Any, deadline: float, /) -> None: ...


@attrs.frozen
class FetcherEnvironment:
    """The environment of all connections of a broker. `new_timer` makes a timer for `sockets` from its callback."""

    sockets: Sockets
    new_timer: Callable[[Callable[[], None]], Any]
    start_soon: Callable[[Callable[[], Awaitable[object]]], object]
    """Starts a task of trio."""
    now_ms: Callable[[], int]
    """The monotonic clock, in milliseconds."""
    address_of: Callable[[int], Address | None]
    timeout_ms: Callable[[], int]
    """replica.socket.timeout.ms, for connecting and for each request."""
    client_id: str
    connect: Connect
    new_exchange: NewExchange | None = None
    """Begins the authentication that leaders require."""


@attrs.define(eq=False)
class LeaderConnection:
    """Carries the requests of a `fetcher` to its leader. Call `poke` whenever it may have a request."""

    fetcher: Fetcher
    around: FetcherEnvironment
    _timer: Any = attrs.field(init=False)
    _end_of_pause: Any = attrs.field(init=False)
    _transport: Transport | None = None
    _conversation: Conversation | None = None
    _login: Login | None = None
    """The authentication under way."""
    _login_due_ms: float = math.inf
    """The time at which this node must authenticate again."""
    _unsent: memoryview | None = None
    _hurrying: Ticket | None = None
    """The request that is to end the leader's wait, until it is answered."""
    _is_watching_write: bool = False
    _is_connecting: bool = False
    _is_closed: bool = False
    _complaint: str = ""
    """The reason that was logged last for a failed connection, until the leader answers a request."""

    def __attrs_post_init__(self) -> None:
        self._timer = self.around.new_timer(self._time_is_up)
        self._end_of_pause = self.around.new_timer(self.poke)

    def poke(self) -> None:
        """Sends a request if there is one, and connects first if needed."""
        if self._is_closed or self._is_connecting:
            return
        if self.fetcher.has_request_in_flight:
            self.fetcher.end_pauses(self.around.now_ms())
            if self.fetcher.should_hurry:
                self._hurry()
            self._watch_pauses()
            return
        if self._transport is None:
            if self.fetcher.next_deadline_ms() <= self.around.now_ms():
                self._is_connecting = True
                self.around.start_soon(self._connect)
            else:
                self._sleep()
        elif self._conversation is not None and not self._is_negotiating:
            self._send_request(self._conversation)

    def close(self) -> None:
        """Ends the connection for good."""
        self._is_closed = True
        self._timer.forget()
        self._end_of_pause.forget()
        self._drop()

    # Connecting

    async def _connect(self) -> None:
        failure = "no answer in time"
        try:
            address = self.around.address_of(self.fetcher.leader_id)
            if address is None:
                failure = "its address is not known"
            else:
                with trio.move_on_after(self.around.timeout_ms() / 1000):
                    transport = await self.around.connect(address)
                    if not self._is_closed:
                        self._take(transport)
                    else:
                        transport.close()
                    return
        except OSError as error:
            failure = reason_of(error)
        except (ProtocolError, TlsError) as error:
            failure = str(error)
        finally:
            self._is_connecting = False
        if not self._is_closed:
            self._lose(failure)

    def _take(self, transport: Transport) -> None:
        self._is_connecting = False
        self._transport = transport
        self._conversation = Conversation(
            client_id=self.around.client_id,
            max_reply_bytes=self.fetcher.settings.response_max_bytes + REPLY_OVERHEAD_BYTES,
        )
        self.around.sockets.add(transport.sock, self._on_ready)
        self._conversation.begin()
        self._start_timer(self.around.timeout_ms())
        self._send_new()

    # Calls of the loop

    def _on_ready(self, _mask: int) -> None:
        transport, conversation = self._transport, self._conversation
        assert transport is not None
        assert conversation is not None
        if self._unsent is not None:
            self._send()
            return
        self._receive(transport, conversation)
        # The loop does not see the bytes that the transport has read from the socket already.
        while transport is self._transport and transport.has_more is not None and transport.has_more():
            self._receive(transport, conversation)

    def _receive(self, transport: Transport, conversation: Conversation) -> None:
        try:
            count = transport.recv_into(conversation.writable())
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(str(error))
            return
        if not count:
            self._lose("it has closed the connection")
            return
        conversation.received(count)
        self._read_replies(conversation)

    def _read_replies(self, conversation: Conversation) -> None:
        was_known = conversation.versions is not None
        try:
            while (reply := conversation.next_reply()) is not None:
                if reply.ticket is self._hurrying:
                    self._hurrying = None
                elif self._login is not None:
                    self._continue_login(conversation, self._login, reply.message)
                else:
                    self._complaint = ""
                    self.fetcher.received(reply.message, self.around.now_ms())
                    self.poke()
                if self._conversation is not conversation:
                    return
        except (ProtocolError, LoginFailed) as error:
            self._lose(str(error))
            return
        if not was_known:
            if conversation.versions is None:
                self._send_new()  # it may request the versions again
            elif self.around.new_exchange is not None:
                self._log_in(conversation, self.around.new_exchange)
            else:
                self.poke()

    # Authentication

    def _log_in(self, conversation: Conversation, new_exchange: NewExchange) -> None:
        self._login = Login(f"leader {self.fetcher.leader_id}", new_exchange())
        self._say(conversation, self._login.first(), at_least=LEAST_HANDSHAKE_VERSION)

    def _continue_login(self, conversation: Conversation, login: Login, response: Any) -> None:
        request = login.following(response)
        if request is not None:
            self._say(conversation, request)
            return
        self._login = None
        self._login_due_ms = self.around.now_ms() + login.renewal_ms
        self.poke()

    def _say(self, conversation: Conversation, request: ApiMessage, *, at_least: int = 0) -> None:
        try:
            version = conversation.version_for(request.api_key, at_least=at_least)
        except NotServed as error:
            self._lose(f"it does not serve {error}")
            return
        conversation.send(request, version)
        self._start_timer(self.around.timeout_ms())
        self._send_new()

    def _time_is_up(self) -> None:
        if self._transport is not None and (self.fetcher.has_request_in_flight or self._is_negotiating):
            self._lose("no answer in time")
        else:
            self.poke()

    @property
    def _is_negotiating(self) -> bool:
        conversation = self._conversation
        return conversation is not None and (conversation.versions is None or self._login is not None)

    # Sending

    def _send_request(self, conversation: Conversation) -> None:
        now_ms = self.around.now_ms()
        if now_ms >= self._login_due_ms and self.around.new_exchange is not None:
            self._login_due_ms = math.inf
            self._log_in(conversation, self.around.new_exchange)
            return
        request = self.fetcher.next_request(now_ms)
        if request is None:
            self._sleep()
            return
        try:
            conversation.send(request, _version_for(conversation, request))
        except NotServed as error:
            self._lose(f"it does not serve {error}")
            return
        self._start_timer(self.around.timeout_ms())
        self._watch_pauses()
        self._send_new()

    def _send_new(self) -> None:
        assert self._conversation is not None
        pieces = self._conversation.data_to_send()
        if pieces:
            self._unsent = memoryview(b"".join(pieces))
            self._send()

    def _send(self) -> None:
        transport = self._transport
        assert transport is not None
        assert self._unsent is not None
        try:
            sent = transport.send(self._unsent, 0)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lose(str(error))
            return
        was_waiting = self._is_watching_write
        self._unsent = self._unsent[sent:] if sent < len(self._unsent) else None
        self._is_watching_write = self._unsent is not None
        if self._is_watching_write != was_waiting:
            self.around.sockets.watch(transport.sock, WRITE if self._is_watching_write else READ)

    def _hurry(self) -> None:
        """Ends the leader's wait for data, so that changed partitions can be fetched at once: the wait of a fetch ends
        with the next request of its connection. After an election, producers wait for that."""
        conversation = self._conversation
        if conversation is None or self._unsent is not None or self._hurrying is not None:
            return
        empty = ListOffsetsRequest(self.fetcher.replica_id)
        try:
            self._hurrying = conversation.send(empty, _version_for(conversation, empty))
        except NotServed:
            return  # the leader answers when its wait is over
        self._send_new()

    # Waiting

    def _sleep(self) -> None:
        deadline_ms = self.fetcher.next_deadline_ms()
        if deadline_ms == math.inf:
            self._timer.stop()
        else:
            self._start_timer(max(deadline_ms - self.around.now_ms(), 0))

    def _watch_pauses(self) -> None:
        """Starts the timer of the next pause that ends while a request is in flight. A partition that waits until the
        leader has the metadata of an election does not wait for the answer as well, because producers wait for it."""
        ends_ms = self.fetcher.next_pause_ends_ms()
        if ends_ms == math.inf:
            self._end_of_pause.stop()
        else:
            delay_ms = max(ends_ms - self.around.now_ms(), 0)
            self.around.sockets.start_timer(self._end_of_pause, self.around.sockets.now + delay_ms / 1000)

    def _start_timer(self, delay_ms: float) -> None:
        self.around.sockets.start_timer(self._timer, self.around.sockets.now + delay_ms / 1000)

    def _lose(self, reason: str) -> None:
        """Drops a connection that has failed. The fetcher continues with another one after its back-off."""
        if reason != self._complaint:
            self._complaint = reason
            log.warning("the connection to leader %d failed, and is tried again: %s", self.fetcher.leader_id, reason)
        self._drop()
        self.fetcher.disconnected(self.around.now_ms())
        self._sleep()

    def _drop(self) -> None:
        if self._transport is not None:
            self.around.sockets.remove(self._transport.sock)
            self._transport.close()
        self._transport = self._conversation = self._unsent = self._hurrying = self._login = None
        self._login_due_ms = math.inf
        self._is_watching_write = False


def _version_for(conversation: Conversation, request: FetchRequest | ListOffsetsRequest) -> int:
    """Raises NotServed."""
    if isinstance(request, FetchRequest):
        return conversation.version_for(request.api_key, at_least=LEAST_FETCH_VERSION, at_most=MOST_FETCH_VERSION)
    return conversation.version_for(request.api_key, at_least=LEAST_LIST_OFFSETS_VERSION)
