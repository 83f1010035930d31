"""A broker without sockets: requests are passed to its handlers, its flushes are run, and the test moves its time."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
from kwire_protocol.wire import ApiMessage

from kwire.handlers.apis import APIS
from kwire.node.broker import Broker
from testkit.metadata.harness import FakeClock, context

TopicPartition = tuple[str, int]
"""A partition: topic and index."""


def _nothing() -> None: ...


@attrs.define(eq=False)
class BrokerDriver:
    """`clock` is the broker's own. `on_answered` is called before what is flushed after an answer, `on_flushed` after
    each flush.
    """

    broker: Broker
    clock: FakeClock
    on_answered: Callable[[], None] = _nothing
    on_flushed: Callable[[], None] = _nothing

    @property
    def now_ms(self) -> int:
        return self.clock.time_ms

    def call(self, request: ApiMessage, version: int) -> Any:
        """Returns the answer of the handler, after the broker's further work is done."""
        answered = self.answer(request, version)
        self.on_answered()
        self.flush()
        return answered

    def answer(self, request: ApiMessage, version: int) -> Any:
        """Returns the answer of the handler, without flushes that the answer does not wait for."""
        api = APIS[request.api_key]
        assert version in api.versions
        handle = api.handler(self.broker)
        handling: Any = handle(request, context(version))
        while isinstance(handling, Coroutine):
            try:
                future = handling.send(None)
            except StopIteration as answered:
                handling = answered.value
            else:
                self.flush()
                if not future.is_set:  # it waits for the end of a transaction, for so long
                    self.advance(math.ceil(future.timeout_s * 1000) if future.timeout_s < math.inf else 100)
                    if not future.is_set:
                        future.give_up()
        return handling

    def flush(self) -> None:
        """Runs the flushes that the flusher runs in its threads."""
        pending = self.broker.flusher._requested
        while pending:
            gate, _ = pending.popitem()
            flush = gate.begin()
            flush.run()
            gate.finish(flush)
            self.on_flushed()

    def advance(self, by_ms: int) -> None:
        self.clock.time_ms += by_ms
        self.do_what_is_due()

    def do_what_is_due(self) -> None:
        for runtime in (self.broker.groups.runtime, self.broker.transactions.runtime):
            for index, _ in runtime.in_service():
                runtime.perform(index, [])
        self.flush()
