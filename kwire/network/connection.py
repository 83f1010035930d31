"""One client connection: receives bytes, splits them into frames, calls handlers and sends their replies.

The processor calls this state machine when the socket is ready. Requests are answered in order. Frames that arrived
together are handled together, and their replies leave in one send:

    Transport -> FrameBuffer -> RequestDecoder -> handler -> write -> Outbox -> Transport
                                      `-> fast path ------------------^

The states of a connection (`states.py`) define how it can be blocked, and what it does then. A handler that must wait
is a coroutine, which the connection drives from one `kwire.runtime.futures.Future` to the next.

If the listener requires authentication, TLS is negotiated first, and requests are decoded by `authentication.py` until
the peer is authenticated. All of that must complete within kwire.authentication.timeout.ms.

While any client has a quota, handlers run through `throttling.py`, which makes them wait on behalf of their clients.

An error of the peer (`ProtocolError`) closes this connection with one log line. A bug in a handler closes it with a
traceback in the log. Neither affects other connections. This is the only place that has `except Exception`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from kwire_protocol.frames import BufferPool, FrameBuffer, MemoryIsFull
from kwire_protocol.headers import response_head
from kwire_protocol.wire import ApiMessage, ProtocolError
from kwire_storage.errors import is_passing

from kwire.handlers.apis import Api, UnsupportedRequest, served_versions
from kwire.handlers.context import CloseAfterResponse, CloseConnection, Context
from kwire.network.authentication import Lasting, Unauthenticated
from kwire.network.decoding import Decode, RequestDecoder, Shapes
from kwire.network.outbox import Outbox
from kwire.network.peer_log import PeerLogs
from kwire.network.states import (
    AUTHENTICATED,
    CLOSED,
    ENDING,
    EXPIRING,
    HANDLER_RESUMES,
    HANDLER_WAITS,
    LOGGED_IN,
    LOGGED_IN_FOR_A_TIME,
    LOGINS,
    LOGS_IN_AGAIN,
    MEMORY_IS_FREE,
    MEMORY_IS_FULL,
    MORE_INPUT,
    NEXT_TURN,
    PEER_ERRED,
    RECEIVING,
    SHAKE_NEEDS_INPUT,
    SHAKE_NEEDS_ROOM,
    SHAKEN,
    SHAKING,
    SHAKING_BLOCKED,
    SOCKET_HAS_ROOM,
    SOCKET_IS_FULL,
    STARVED,
    TRANSITIONS,
    TURN_IS_OVER,
    UNAUTHENTICATED,
    WAITING,
    Event,
)
from kwire.runtime.futures import Future
from kwire.runtime.poll import NOTHING, WRITE
from kwire.runtime.processor import Processor, Timer
from kwire.runtime.transport import PeerLost, Transport
from kwire.security.principal import ANONYMOUS, Requester
from kwire.security.sasl.exchange import SaslSession

if TYPE_CHECKING:
    from kwire.network.services import Node
    from kwire.network.throttling import Throttling

MAX_FRAMES_PER_TURN = 64
"""The number of requests after which a connection yields to the others, even if it has more."""

MAX_BYTES_PER_TURN = 4 << 20
"""The number of bytes after which a connection yields, too, if the peer sends without a pause."""

MAX_PENDING_REPLY_BYTES = 1 << 20
"""The size of unsent replies above which a connection sends them before it handles more requests. It waits if the peer
does not read."""

LONGEST_STARVED_S = 30.0
"""The time in seconds without memory for the rest of a request after which stalled connections are closed: those whose
unfinished requests take that memory, but that send next to nothing."""

LEAST_PROGRESS_BYTES = 64 * 1024
"""The number of bytes below which the input in LONGEST_STARVED_S counts as next to nothing."""

PeerAddress = tuple[str, int] | tuple[str, int, int, int]
"""Host and port, as `accept` returns them; for IPv6 also the flow info and the scope id."""

CLOSING_ERRORS = (ProtocolError, UnsupportedRequest, CloseConnection)
"""Errors of the peer that close its connection with one log line. All are raised before a reply is begun."""


class Connection:
    """Serves one peer from `open` until it calls `on_closed`."""

    def __init__(
        self,
        node: Node,
        apis: Mapping[int, Api],
        transport: Transport,
        processor: Processor,
        *,
        peer: PeerAddress,
        listener_name: str,
        sasl: SaslSession | None = None,
        pool: BufferPool,
        shapes: Shapes,
        logs: PeerLogs,
        on_closed: Callable[[Connection], None],
        on_starved: Callable[[], None],
        now: float,
    ) -> None:
        self._transport = transport
        self.sock = sock = transport.sock
        self._node = node
        self._apis = apis
        self._processor = processor
        self._on_closed = on_closed
        self._on_starved = on_starved
        self._logs = logs
        self._has_more = transport.has_more
        self._frames = FrameBuffer(node.config.socket_request_max_bytes, pool)
        self._outbox = Outbox(transport, node.config.socket_send_buffer_bytes)
        local = sock.getsockname()
        self.client_host: str = peer[0]
        self.name = f"{peer[0]}:{peer[1]}"
        self.last_active = now
        self._context = Context(
            client_host=peer[0],
            local_host=local[0],
            local_port=local[1],
            listener_name=listener_name,
            served_versions=served_versions(unstable=node.config.unstable_api_versions_enable),
            sasl=sasl,
        )
        self._decoder = RequestDecoder(apis, self._context, shapes)
        self._decode: Decode
        self._throttling: Throttling | None = None
        self._login = AUTHENTICATED if sasl is None else UNAUTHENTICATED
        self._expires_at = math.inf
        """The end of the session of a login that is EXPIRING, by the processor's clock."""
        self._handling: Coroutine[Future[Any], None, ApiMessage | None] | None = None
        self._handled_id = 0
        """The waiting handler, and the correlation id of its request."""
        self._future: Future[Any] | None = None
        """The future that the handler waits for."""
        self._timer = Timer(self._on_time_over)
        self._progress: tuple[int, int] | None = None
        """Completed requests and pending bytes at the last call of `has_stalled`; None if no memory was taken then."""
        self._pauses = 0
        """The processor's count of pauses when the socket was last full."""
        self._state = RECEIVING
        self._introduction: Timer | None = None
        """The timer of kwire.authentication.timeout.ms; None if the peer is authenticated, or need not be."""
        if sasl is not None:
            self._frames.max_frame_bytes = min(
                node.config.sasl_server_max_receive_size, node.config.socket_request_max_bytes
            )
            self._context.on_authenticated = self._on_authenticated
            self._context.on_authenticating_again = self._on_authenticating_again
        if transport.handshake is not None:
            self._state = SHAKING
        self._choose_decoder()
        self.follow_quotas()

    def open(self) -> None:
        """Starts to serve the peer."""
        self._processor.add(self.sock, self._on_ready)
        if self._state is SHAKING or self._context.sasl is not None:
            self._introduction = Timer(self._on_introduction_over)
            timeout_s = self._node.config.kwire_authentication_timeout_ms / 1000
            self._processor.start_timer(self._introduction, self._processor.now + timeout_s)

    def close(self) -> None:
        """Closes it at once. Unsent replies are dropped, and a waiting handler is closed."""
        if self._state is CLOSED:
            return
        if self._state.listens_to != NOTHING:
            self._processor.remove(self.sock)
        self._state = CLOSED
        self._timer.forget()
        if self._introduction is not None:
            self._introduction.forget()
        self._future = None
        if self._handling is not None:
            self._handling.close()
            self._handling = None
        self._transport.close()
        self._frames.close()
        if self._context.on_closed is not None:
            self._context.on_closed()
        self._on_closed(self)

    def close_idle(self, now: float) -> None:
        """Closes it because it was idle for connections.max.idle.ms."""
        self._logs.closings.write(
            logging.INFO, "closing the connection from %s: idle for connections.max.idle.ms", self.name, now=now
        )
        self.close()

    def has_stalled(self) -> bool:
        """Returns True if a begun request takes memory, and next to nothing of it came since the last call."""
        frames = self._frames
        before, self._progress = self._progress, (frames.completed, frames.pending) if frames.capacity else None
        return (
            before is not None
            and self._progress is not None
            and before[0] == self._progress[0]
            and self._progress[1] - before[1] < LEAST_PROGRESS_BYTES
            and self._state is not STARVED
            and self._handling is None
        )

    def close_stalled(self, now: float) -> None:
        self._logs.closings.write(
            logging.WARNING,
            "closing the connection from %s: it began a request and has sent next to nothing of it for %d s, while "
            "others wait for the memory (queued.max.request.bytes)",
            self.name,
            LONGEST_STARVED_S,
            now=now,
        )
        self.close()

    # What the processor calls

    def _on_ready(self, _: int) -> None:
        state = self._state
        if state is RECEIVING:
            self._guarded(self._serve)
        elif state is SHAKING_BLOCKED:
            self._guarded(self._shake)
        elif state.listens_to == WRITE:
            self._guarded(self._continue_sending)
        elif state is WAITING:
            self._guarded(self._on_input_while_waiting)
        elif state is SHAKING:
            self._guarded(self._shake)
        # Else it is YIELDING, and the input waits for its next turn.

    def _on_future_set(self) -> None:
        self._processor.call_soon(self._resume)

    def _on_time_over(self) -> None:
        if self._future is not None:
            self._future.give_up()
        elif self._state is STARVED:
            self._processor.start_timer(self._timer, self._processor.now + LONGEST_STARVED_S)
            self._on_starved()

    def _resume(self) -> None:
        if self._state is not CLOSED:
            self._guarded(self._continue_handling)

    def _next_turn(self) -> None:
        if self._state is not CLOSED:
            self._guarded(self._continue_in_next_turn)

    def _enter(self, event: Event) -> None:
        """Takes the transition for `event`, and watches the socket for what the new state listens to."""
        before = self._state
        self._state = after = TRANSITIONS[before][event]
        if after.listens_to != before.listens_to:
            if after.listens_to == NOTHING:
                self._processor.remove(self.sock)
            elif before.listens_to == NOTHING:
                self._processor.add(self.sock, self._on_ready)
            else:
                self._processor.watch(self.sock, after.listens_to)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            try:
                step()
            except CLOSING_ERRORS as error:
                self._logs.closings.write(
                    logging.WARNING,
                    "closing the connection from %s (client id %a): %s",
                    self.name,
                    self._context.client_id,
                    error,
                    now=self._processor.now,
                )
                if isinstance(error, CloseAfterResponse):
                    self._reply(self._context.api_key, self._context.api_version, self._handled_id, error.response)
                # Earlier requests were valid and have been carried out, so their replies are still sent.
                if self._flush():
                    self.close()
                else:
                    self._enter(PEER_ERRED)
        except PeerLost:
            self.close()
        except MemoryError as error:
            self._close_for_want(f"out of memory: {error}")
        except Exception as error:
            if isinstance(error, OSError) and is_passing(error):
                self._close_for_want(str(error))
                return
            self._logs.bugs.write(
                logging.ERROR,
                "a bug in kwire: closing the connection from %s (client id %a) after api key %d version %d",
                self.name,
                self._context.client_id,
                self._context.api_key,
                self._context.api_version,
                now=self._processor.now,
                with_traceback=True,
            )
            self.close()

    def _close_for_want(self, of_what: str) -> None:
        self._logs.closings.write(
            logging.ERROR,
            "closing the connection from %s (client id %a): %s",
            self.name,
            self._context.client_id,
            of_what,
            now=self._processor.now,
        )
        self.close()

    # Authentication

    def _shake(self) -> None:
        """Continues the transport's handshake. Input that the peer has sent after it is served at once."""
        handshake = self._transport.handshake
        assert handshake is not None
        try:
            waits_for = handshake()
        except OSError as error:
            raise PeerLost from error
        self.last_active = self._processor.now
        if waits_for:
            self._enter(SHAKE_NEEDS_ROOM if waits_for == WRITE else SHAKE_NEEDS_INPUT)
            return
        self._enter(SHAKEN)
        principal = self._transport.principal
        self._context.requester = Requester(principal, self.client_host)
        if principal != ANONYMOUS:
            self._node.audit.authenticated(
                self.client_host, mechanism="a certificate", listener=self._context.listener_name, principal=principal
            )
        if self._context.sasl is None:
            self._forget_introduction()
        self._serve()

    def _on_authenticated(self, lasts_s: float | None) -> None:
        """Accepts all requests now that the peer is authenticated, for `lasts_s` seconds unless it is None."""
        self._forget_introduction()
        self._frames.max_frame_bytes = self._node.config.socket_request_max_bytes
        if lasts_s is None:
            self._log_in(LOGGED_IN)
        else:
            self._expires_at = self._processor.now + lasts_s
            self._log_in(LOGGED_IN_FOR_A_TIME)

    def _log_in(self, event: Event) -> None:
        self._login = LOGINS[self._login][event]
        self._choose_decoder()

    def _choose_decoder(self) -> None:
        """Sets the function that decodes frames, by the login and the throttling."""
        if not self._login.accepts_all:
            assert self._context.sasl is not None
            self._decode = Unauthenticated(self._apis, self._context, self._context.sasl).decode
            return
        self._decoder.uses_fast_paths = self._throttling is None
        decode: Decode = self._decoder.decode if self._throttling is None else self._throttling.decode
        if self._login is EXPIRING:
            decode = Lasting(self._decoder, decode, lambda: self._processor.now >= self._expires_at).decode
        self._decode = decode

    def _forget_introduction(self) -> None:
        if self._introduction is not None:
            self._introduction.forget()
            self._introduction = None

    def _on_introduction_over(self) -> None:
        self._logs.closings.write(
            logging.WARNING,
            "closing the connection from %s: not authenticated within kwire.authentication.timeout.ms",
            self.name,
            now=self._processor.now,
        )
        self.close()

    def _on_authenticating_again(self) -> None:
        """Accepts no other requests until the peer has re-authenticated, as in Kafka."""
        self._log_in(LOGS_IN_AGAIN)

    # Quotas

    def follow_quotas(self) -> None:
        """Turns throttling on if any client has a quota now, and off if none has."""
        are_set = self._node.client_quotas.are_set
        if are_set == (self._throttling is not None):
            return
        if self._throttling is None:
            from kwire.network.throttling import Throttling

            self._throttling = Throttling(self._node, self._context, self._decoder.decode, self._reply_early)
        else:
            self._throttling.end()
            self._throttling = None
        if self._login.accepts_all:
            self._choose_decoder()

    def _reply_early(self, response: ApiMessage) -> None:
        """Answers the request that is being handled, before its handler is done."""
        self._reply(self._context.api_key, self._context.api_version, self._handled_id, response)

    # Receiving and answering

    def _serve(self) -> None:
        """Receives the available input, and answers it."""
        transport, frames = self._transport, self._frames
        received = 0
        while True:
            try:
                count = transport.recv_into(frames.writable())
            except BlockingIOError:
                break
            except MemoryIsFull:
                self._wait_for_memory()
                break
            except OSError as error:
                raise PeerLost from error
            if count == 0:
                raise PeerLost
            self.last_active = self._processor.now
            received += count
            frame = frames.whole_frame(count)
            if frame is None:
                frames.received(count)
                frame = frames.next_frame()
            if not self._answer_all(frame):
                return
            # If the client waits for its answer, the socket is empty. After half a frame the rest is probably there.
            if not self._flush() or not frames.pending or received > MAX_BYTES_PER_TURN:
                break
        frames.release()
        if self._has_more is not None:
            self._request_turn()

    def _wait_for_memory(self) -> None:
        self._enter(MEMORY_IS_FULL)
        self._frames.when_there_is_memory(lambda: self._processor.call_soon(self._continue_with_memory))
        self._processor.start_timer(self._timer, self._processor.now + LONGEST_STARVED_S)

    def _continue_with_memory(self) -> None:
        if self._state is STARVED:
            self._timer.stop()
            self._enter(MEMORY_IS_FREE)
            self._guarded(self._serve)

    def _continue_answering(self) -> None:
        """Answers the frames that had to wait. Input that arrived in the meantime is received in the next turn."""
        frames = self._frames
        if frames.pending:
            if not self._answer_all(frames.next_frame()):
                return
            frames.release()
        self._flush()
        if self._has_more is not None:
            self._request_turn()

    def _request_turn(self) -> None:
        """Requests a turn if the transport has buffered input: the processor only watches the socket."""
        assert self._has_more is not None
        if self._state is RECEIVING and self._has_more():
            self._processor.call_soon(self._continue_receiving)

    def _continue_receiving(self) -> None:
        if self._state is RECEIVING:
            self._guarded(self._serve)

    def _answer_all(self, frame: memoryview | None) -> bool:
        """Answers a frame that was taken from the buffer, if there is one, and all whole frames that are left.

        Returns False if it must stop earlier and continue later.
        """
        frames, context, decode = self._frames, self._context, self._decode
        count = 0
        while frame is not None:
            handle, request, correlation_id = decode(frame)
            response = request if handle is None else handle(request, context)
            kind = type(response)
            if kind is bytes:
                self._outbox.writer.buf += response
            elif kind is CoroutineType:
                self._handling, self._handled_id = response, correlation_id
                if not self._drive():
                    return False
                decode = self._decode  # an authentication may have changed it
            elif response is not None:
                self._reply(context.api_key, context.api_version, correlation_id, response)
            count += 1
            if self._outbox.writer.size > MAX_PENDING_REPLY_BYTES:
                frames.release()
                if not self._flush():
                    return False
            if count == MAX_FRAMES_PER_TURN:
                self._enter(TURN_IS_OVER)
                self._processor.call_soon(self._next_turn)
                frames.release()
                self._flush()
                return False
            frame = frames.next_frame()
        return True

    def _drive(self) -> bool:
        """Runs the handler until it answers. Returns False if it waits."""
        handling, context = self._handling, self._context
        assert handling is not None
        try:
            future = handling.send(None)
        except StopIteration as answered:
            self._handling = None
            if answered.value is not None:
                self._reply(context.api_key, context.api_version, self._handled_id, answered.value)
            return True
        self._future = future
        self._state = TRANSITIONS[self._state][HANDLER_WAITS]  # which listens to the same as the one before
        future.when_set(self._on_future_set)
        # Before the wait, replies that are ready are sent, and the shared receive buffer is released.
        self._frames.release()
        self._flush()
        if future.ends_on_input and (self._frames.pending or (self._has_more is not None and self._has_more())):
            future.give_up()
        elif future.timeout_s < math.inf:
            self._processor.start_timer(self._timer, self._processor.now + future.timeout_s)
        return False

    def _continue_handling(self) -> None:
        """Resumes the handler, now that the future it waited for is set."""
        self._future = None
        self._timer.stop()
        self._enter(HANDLER_RESUMES)
        if self._drive():
            self._continue_answering()

    def _continue_in_next_turn(self) -> None:
        self._enter(NEXT_TURN)
        if self._state is RECEIVING:
            self._continue_answering()

    def _on_input_while_waiting(self) -> None:
        """Handles input before the current request is answered: the next request, or the end of the connection."""
        future = self._future
        assert future is not None
        if future.ends_on_input:
            future.give_up()
        else:
            # Otherwise the socket would stay readable, and the processor would call again in every turn.
            self._enter(MORE_INPUT)

    def _reply(self, key: int, version: int, correlation_id: int, response: ApiMessage) -> None:
        writer = self._outbox.writer
        writer.begin_frame(response_head(key, version, correlation_id))
        response.write(writer, version)
        writer.end_frame()

    # Sending

    def _flush(self) -> bool:
        """Sends the replies that are ready. Returns False if the socket did not take all; the rest is sent later."""
        if self._outbox.flush():
            return True
        if self._state.listens_to != WRITE:
            self._enter(SOCKET_IS_FULL)
            self._pauses = self._processor.pauses
        return False

    def _continue_sending(self) -> None:
        """Continues to send, now that the socket has room again."""
        pauses = self._processor.pauses
        self._outbox.adapt(had_to_wait=pauses != self._pauses)
        self._pauses = pauses
        if not self._outbox.flush():
            return
        if self._state is ENDING:
            self.close()
            return
        self._enter(SOCKET_HAS_ROOM)
        if self._state is RECEIVING:
            self._continue_answering()
