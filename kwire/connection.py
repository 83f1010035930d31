"""One client connection: bytes from the socket to frames, frames to handlers, replies back to the socket.

One trio task, from accept to close. Requests are answered in order. Frames that arrived together are handled together
and their replies leave in one send, so a task switch and a system call are shared by all of them:

    recv_into -> FrameBuffer -> header -> apis.APIS -> read -> handler -> write -> send / sendfile

A reply is a list of pieces: bytes, and regions of segment files that go out by sendfile without passing through
Python. What the peer does wrong (`ProtocolError`) closes this connection with one log line; a bug in a handler closes
it with a traceback in the log; neither touches anybody else. This is the one place where `except Exception` stands.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, TypeVar

import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.frames import BufferPool, FrameBuffer
from kwire_protocol.headers import read_request_header, write_response_header
from kwire_protocol.messages.api_versions import ApiVersionsResponse
from kwire_protocol.wire import ApiMessage, ProtocolError, Reader, Writer
from kwire_storage.log import LogSlice

from kwire.apis import API_VERSIONS, APIS, Handler, UnsupportedRequest
from kwire.context import Context, Slot
from kwire.handlers.api_versions import served_versions
from kwire.handlers.produce import UnacknowledgedProduceFailed

if TYPE_CHECKING:
    from kwire.broker import Broker

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_FRAMES_PER_TURN = 64
"""A connection that floods us with small requests lets the others have a turn after so many."""

MAX_BYTES_PER_TURN = 4 << 20
"""So does one that sends without a pause."""

MAX_PENDING_REPLY_BYTES = 1 << 20
"""Replies are sent, and their reader waited for, before more than this is held for one connection."""

CLOSING_ERRORS = (ProtocolError, UnsupportedRequest, UnacknowledgedProduceFailed)
"""What the peer did that ends its connection, with one log line. All are raised before a reply is begun."""

MAX_REQUEST_ELEMENTS = 250_000
"""The elements of all arrays of a request together. The largest honest one names every partition of a large cluster."""

SEND_CHUNK_BYTES = 256 * 1024
"""No more of a file is sent in one turn: a large answer lets the other connections go on, and its reader, who would
otherwise keep pace and sleep between its segments, has something to do. Waking it is the dearest part of sending."""

COPY_CHUNK_BYTES = 256 * 1024
"""Slices of files without a descriptor (the in-memory disk) are copied to the socket in pieces of this size."""


class PeerLost(Exception):
    """The connection ended while something was being sent or read; nothing to say to anybody."""


class ParkedFetch:
    """Parks a request until something wakes it, its time is over or its socket has something to read.

    The last matters: the Java consumer pipelines its next fetch in front of its ListOffsets, and answering the fetch
    at once, empty, spares Spark's micro-batches the whole of fetch.max.wait.ms. It is the connection's own task that
    waits; waking it cancels the scope around `wait_readable`.
    """

    __slots__ = ("_connection", "_scope", "_woken")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._scope: trio.CancelScope | None = None
        self._woken = False

    def wake(self) -> None:
        self._woken = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait(self, timeout_s: float) -> bool:
        connection = self._connection
        await connection.prepare_to_wait()
        if self._woken or timeout_s <= 0 or connection.has_unread_bytes:
            return self._woken
        with trio.CancelScope(deadline=trio.current_time() + timeout_s) as self._scope:
            await trio.lowlevel.wait_readable(connection.sock)
        self._scope = None
        return self._woken


class Connection:
    """Serves one socket, which must be non-blocking and connected."""

    def __init__(self, broker: Broker, sock: socket.socket, *, listener_name: str, pool: BufferPool) -> None:
        self.sock = sock
        self._broker = broker
        self._frames = FrameBuffer(broker.config.socket_request_max_bytes, pool)
        self._writer = Writer()
        self._scope = trio.CancelScope()
        peer, local = sock.getpeername(), sock.getsockname()
        self.client_host: str = peer[0]
        self.name = f"{peer[0]}:{peer[1]}"
        self.last_active = trio.current_time()
        self._bytes_this_turn = 0
        self._context = Context(
            parking=self,
            client_host=peer[0],
            local_host=local[0],
            local_port=local[1],
            listener_name=listener_name,
        )

    # Parking, for the handlers.

    def waiter(self) -> ParkedFetch:
        return ParkedFetch(self)

    async def wait_for(self, slot: Slot[T]) -> T:
        await self.prepare_to_wait()
        return await slot.get()

    async def prepare_to_wait(self) -> None:
        """Sends what is ready, and leaves the shared receive buffer to the other connections."""
        self._frames.let_go()
        await self.flush()

    @property
    def has_unread_bytes(self) -> bool:
        return self._frames.pending > 0

    def close_idle(self) -> None:
        """Ends the connection from another task, as after connections.max.idle.ms."""
        log.info("closing the connection from %s: idle for connections.max.idle.ms", self.name)
        self._scope.cancel()

    async def run(self) -> None:
        """Serves until the peer hangs up, breaks the protocol or the task is cancelled; closes the socket."""
        try:
            with self._scope:
                await self._serve()
        except PeerLost:
            pass
        except CLOSING_ERRORS as error:
            log.warning("closing the connection from %s (client id %a): %s", self.name, self._context.client_id, error)
        except Exception:
            log.exception(
                "a bug in kwire: closing the connection from %s (client id %a) after api key %d version %d",
                self.name,
                self._context.client_id,
                self._context.api_key,
                self._context.api_version,
            )
        finally:
            trio.lowlevel.notify_closing(self.sock)
            self.sock.close()

    async def _serve(self) -> None:
        while True:
            await self._receive()
            try:
                await self._answer_all()
            except CLOSING_ERRORS:
                # What was asked before it deserves its answer: those requests were right, and have been carried out.
                await self.flush()
                raise
            await self.prepare_to_wait()

    async def _answer_all(self) -> None:
        """Answers every whole frame that has arrived."""
        frames, broker, context = self._frames, self._broker, self._context
        frames_this_turn = 0
        while (frame := frames.next_frame()) is not None:
            call = self._decode(frame)
            if call is not None:
                handle, request, correlation_id = call
                response = await handle(broker, request, context)
                if response is not None:
                    self._reply(context.api_key, context.api_version, correlation_id, response)
            frames_this_turn += 1
            if self._writer.size > MAX_PENDING_REPLY_BYTES or frames_this_turn == MAX_FRAMES_PER_TURN:
                await self.prepare_to_wait()
            if frames_this_turn == MAX_FRAMES_PER_TURN:
                frames_this_turn = 0
                await trio.lowlevel.checkpoint()

    async def _receive(self) -> None:
        """Receives something, waiting for it if need be."""
        sock, frames = self.sock, self._frames
        # The rest of half a frame is likely to be there already. Everybody else waits first: the socket of a client
        # that waits for its answer is empty, and the others get their turn.
        if not frames.pending:
            self._bytes_this_turn = 0
            await trio.lowlevel.wait_readable(sock)
        while True:
            try:
                count = sock.recv_into(frames.writable())
            except BlockingIOError:
                frames.let_go()
                self._bytes_this_turn = 0
                await trio.lowlevel.wait_readable(sock)
                continue
            except OSError as error:
                raise PeerLost from error
            break
        if count == 0:
            raise PeerLost
        self.last_active = trio.current_time()
        frames.received(count)
        self._bytes_this_turn += count
        if self._bytes_this_turn > MAX_BYTES_PER_TURN:
            self._bytes_this_turn = 0
            frames.let_go()
            await trio.lowlevel.checkpoint()

    def _decode(self, frame: memoryview) -> tuple[Handler, ApiMessage, int] | None:
        """Who handles a frame's request, the request, and its correlation id; None when it is answered already."""
        reader = Reader(frame, 0, MAX_REQUEST_ELEMENTS)
        context = self._context
        key, version, correlation_id, context.client_id = read_request_header(reader)
        context.api_key, context.api_version = key, version
        api = APIS.get(key)
        if api is None or version not in api.versions:
            if key != API_VERSIONS:
                raise UnsupportedRequest(key, version)
            self._reply(key, 0, correlation_id, self._unsupported_api_versions())
            return None
        read, handle = api.functions or api.load()
        return handle, read(reader, version), correlation_id

    @staticmethod
    def _unsupported_api_versions() -> ApiVersionsResponse:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served_versions())

    def _reply(self, key: int, version: int, correlation_id: int, response: ApiMessage) -> None:
        writer = self._writer
        writer.begin_frame()
        write_response_header(writer, key, version, correlation_id)
        response.write(writer, version)
        writer.end_frame()

    async def flush(self) -> None:
        """Sends the replies that are ready and waits until the socket has taken them."""
        writer = self._writer
        if not writer.buf:
            return
        if not writer.attachments:
            await self._send(writer.buf, 0)
            writer.buf.clear()
            return
        self._writer = Writer()
        pieces = writer.pieces()
        last = len(pieces) - 1
        for number, piece in enumerate(pieces):
            # While more follows, the kernel may put a reply's head and its records into one segment.
            flags = 0 if number == last else socket.MSG_MORE
            if isinstance(piece, (bytes, bytearray, memoryview)):
                await self._send(piece, flags)
            else:
                assert isinstance(piece, LogSlice), "the only region that handlers answer with"
                await self._send_slice(piece, flags)

    async def _send(self, data: bytes | bytearray | memoryview, flags: int) -> None:
        try:
            sent = self.sock.send(data, flags)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise PeerLost from error
        if sent != len(data):
            with memoryview(data) as view:
                await self._send_rest(view[sent:], flags)

    async def _send_rest(self, rest: memoryview, flags: int) -> None:
        while rest:
            await trio.lowlevel.wait_writable(self.sock)
            try:
                rest = rest[self.sock.send(rest, flags) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise PeerLost from error

    async def _send_slice(self, piece: LogSlice, flags: int) -> None:
        descriptor = piece.file.fileno()
        position, left = piece.position, piece.size
        if descriptor is None:
            while left:
                chunk = piece.file.read(position, min(COPY_CHUNK_BYTES, left))
                position += len(chunk)
                left -= len(chunk)
                await self._send(chunk, socket.MSG_MORE if left else flags)
            return
        while left:
            try:
                sent = os.sendfile(self.sock.fileno(), descriptor, position, min(left, SEND_CHUNK_BYTES))
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self.sock)
                continue
            except OSError as error:
                raise PeerLost from error
            if sent == 0:
                raise PeerLost("the segment is shorter than the reply that names it")
            position += sent
            left -= sent
            if left:
                await trio.lowlevel.checkpoint()
