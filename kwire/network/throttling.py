"""Charges the requests of one connection to the quotas of its client, and makes it pause (KIP-13, KIP-124, KIP-219).

While any client has a quota, this decodes the requests of every connection, and handlers run through it:

    Produce                  the bytes of the request, and the time that its handler ran
    Fetch of a consumer      the bytes of the response, and that time. An answer that exceeds the quota is not sent: the
                             response is empty, and the consumer fetches again
    ShareFetch               the same, but the response is sent, since its records are acquired
    other requests           that time, or the handler's own throttle time if it is longer
    those between brokers    nothing

The response to a client that has exceeded its quota has the throttle time, and is sent at once. After that the
connection is blocked for that time as by a handler that waits: to the connection, the pause is a part of handling the
request (`states.py`). So it receives nothing, and requests that have arrived already wait. This also throttles clients
that ignore the throttle time.

Without quotas, requests do not pass through this module.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from copy import copy
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

import attrs
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.wire import ApiMessage, Reader, Writer

from kwire.handlers.context import Context, Handler
from kwire.metadata.answers import EncodedResponse
from kwire.network.decoding import Decode
from kwire.quotas.client_quotas import Client
from kwire.runtime.futures import Future, Pause

if TYPE_CHECKING:
    from kwire.network.services import Node

PRODUCE: Final = 0
FETCH: Final = 1
SHARE_FETCH: Final = 78

EXEMPT: Final = frozenset({17, 27, 36, 56, 83, 84, 85, 86, 87})
"""The keys of exempt APIs: authentication, and requests between brokers (WriteTxnMarkers, AlterPartition, and those of
the share coordinator)."""

NS_PER_PERCENT: Final = 10_000_000
"""One percent of a second, in nanoseconds."""

Reply = Callable[[ApiMessage], None]


class Throttling:
    """The throttling of one connection. `reply` writes the response to the request that is being handled."""

    def __init__(self, node: Node, context: Context, decode: Decode, reply: Reply) -> None:
        self._quotas = node.client_quotas
        self._now_ms = node.clock.monotonic_ms
        self._context = context
        self._decode = decode
        self._reply = reply
        self._handle: Handler
        self._client = Client("", "")
        """A client without a quota, at first: a handler may be waiting already when the first quota is set."""
        self._size = 0
        """The size of the request in bytes."""
        self._began_ns = 0
        self._ran_ns = 0
        """The time at which its handler was last resumed, and the time that it ran before that."""
        self._is_fetch_charged = False
        context.fetch_throttle_ms = self._fetch_throttle_ms

    def end(self) -> None:
        """Ends the throttling when no client has a quota any more."""
        self._context.fetch_throttle_ms = None

    def decode(self, frame: memoryview) -> tuple[Handler, Any, int]:
        """Decodes as `RequestDecoder.decode`, but with a handler that charges for the request, and no fast path."""
        self._began_ns, self._ran_ns = self._quotas.running_ns(), 0
        handle, request, correlation_id = self._decode(frame)
        assert handle is not None, "no fast path answers while any client has a quota"
        context = self._context
        if context.api_key in EXEMPT or (context.api_key == FETCH and _is_follower(request)):
            return handle, request, correlation_id
        self._handle, self._size, self._is_fetch_charged = handle, len(frame), False
        self._client = Client(context.principal.name, context.client_id or "")
        if context.api_key in (FETCH, SHARE_FETCH):
            self._limit(request)
        return self._run, request, correlation_id

    def _limit(self, request: Any) -> None:
        """Limits a fetch to the bytes that the quota allows in a window, since a larger response is never sent.

        Whole batches seldom fill that to the byte, but always half of it: the client must not wait for more.
        """
        most = self._quotas.fetched.most_at_once(self._client, self._now_ms())
        if most is not None:
            request.max_bytes = int(min(request.max_bytes, most))
            request.min_bytes = min(request.min_bytes, max(1, request.max_bytes // 2))

    def _run(self, request: Any, context: Context) -> Any:
        response = self._handle(request, context)
        if type(response) is CoroutineType:
            return self._run_on(response, request)
        throttle_ms = self._charge(request, response)
        return self._throttled(response, throttle_ms) if throttle_ms else response

    async def _run_on(self, handling: Coroutine[Future[Any], None, Any], request: Any) -> Any:
        response = await _Timed(self, handling)
        throttle_ms = self._charge(request, response)
        if throttle_ms:
            await self._throttled(response, throttle_ms)
            return None
        return response

    async def _throttled(self, response: Any, throttle_ms: int) -> None:
        if response is not None:
            self._reply(self._with_throttle_time(response, throttle_ms))
        await Pause(throttle_ms / 1000)

    def _with_throttle_time(self, response: Any, throttle_ms: int) -> ApiMessage:
        """Returns a copy of the response with that throttle time, if it has the field. The original may be shared."""
        if isinstance(response, EncodedResponse):
            context = self._context
            throttled = MESSAGES[context.api_key].response_class.read(Reader(response.body), context.api_version)
        else:
            throttled = copy(response)
        if hasattr(throttled, "throttle_time_ms"):
            throttled.throttle_time_ms = throttle_ms
        return throttled

    def resumed(self) -> None:
        """Restarts the time that is charged, when the handler resumes."""
        self._began_ns = self._quotas.running_ns()

    def waits(self) -> None:
        self._ran_ns = self._running_ns()

    def _running_ns(self) -> int:
        return self._ran_ns + self._quotas.running_ns() - self._began_ns

    def _charge(self, request: Any, response: Any) -> int:
        """Charges for a request with that response. Returns the time in ms for which the client must pause."""
        key = self._context.api_key
        response_throttle_ms = getattr(response, "throttle_time_ms", 0)
        if key == PRODUCE:
            throttle_ms = self._quotas.produced.record(self._client, self._size, self._now_ms())
            if request.acks:
                throttle_ms = max(throttle_ms, self._charge_time())
        elif key == FETCH:
            if response_throttle_ms:
                return response_throttle_ms  # the answer is empty
            throttle_ms = 0 if self._is_fetch_charged else self._charge_time()
            self._charge_answer(response)
        elif key == SHARE_FETCH:
            throttle_ms = max(self._charge_time(), self._charge_answer(response))
        else:
            throttle_ms = max(self._charge_time(), response_throttle_ms)
        return throttle_ms

    def _charge_time(self) -> int:
        percentage = self._running_ns() / NS_PER_PERCENT
        quotas = self._quotas
        throttle_ms = quotas.request_percentage.record(self._client, percentage, self._now_ms())
        # As in Kafka, a client with one slow request does not wait for minutes.
        return min(throttle_ms, quotas.window.sample_ms)

    def _charge_answer(self, response: ApiMessage) -> int:
        """Charges for the bytes of a response, including its size field but not its header."""
        fetched = self._quotas.fetched
        if fetched.find(self._client, self._now_ms()) is None:
            return 0
        writer = Writer()
        response.write(writer, self._context.api_version)
        return fetched.record(self._client, writer.size + 4, self._now_ms())

    def _fetch_throttle_ms(self, size: int) -> int:
        """Implements `Context.fetch_throttle_ms`. The bytes of the response are charged later, when it is written."""
        self._is_fetch_charged = True
        return max(self._charge_time(), self._quotas.fetched.throttle_before(self._client, size, self._now_ms()))


@attrs.frozen
class _Timed:
    """Awaits the rest of a handler. The client is charged only for the time in which it runs."""

    throttling: Throttling
    handling: Coroutine[Future[Any], None, Any]

    def __await__(self) -> Generator[Future[Any], None, Any]:
        try:
            while True:
                try:
                    future = self.handling.send(None)
                except StopIteration as done:
                    return done.value
                self.throttling.waits()
                yield future
                self.throttling.resumed()
        finally:
            self.handling.close()


def _is_follower(request: Any) -> bool:
    replica_id: int = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return replica_id >= 0
