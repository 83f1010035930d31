"""Sends requests to other nodes, one at a time to each: the next one carries everything requested meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs
from kwire_protocol.wire import ApiMessage
from outcome import Error

from kwire.peers.peers import Answer, Peers
from kwire.runtime.futures import Future

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 30.0
"""The timeout of each request; request.timeout.ms in Kafka."""

T = TypeVar("T")


class Sent(Protocol):
    @property
    def node_id(self) -> int: ...

    @property
    def request(self) -> ApiMessage: ...


S = TypeVar("S", bound=Sent)


def on_set(future: Future[T], callback: Callable[[T], object]) -> None:
    """Calls `callback` with the future's value: now, or when it is set."""
    if future.is_set:
        callback(future.value)
    else:
        future.when_set(lambda: _call(callback, future.value))


def _call(callback: Callable[[T], object], value: T) -> None:
    callback(value)


@attrs.define(eq=False)
class Sender(Generic[S]):
    """`next_request` is the machine's; `answered` gets each request with its response, or None if there is none.

    A request is made after other work has had a turn, so that it carries everything from this turn. `at_least` is the
    oldest version that suffices.
    """

    peers: Peers
    next_request: Callable[[int], S | None]
    answered: Callable[[S, Any], None]
    at_least: int = 0
    _scheduled: set[int] = attrs.field(factory=set)

    def send_soon(self, node_id: int) -> None:
        """Sends a request to that node after this turn."""
        if node_id not in self._scheduled:
            self._scheduled.add(node_id)
            on_set(self.peers.loop.next_turn(), lambda _: self._send(node_id))

    def _send(self, node_id: int) -> None:
        self._scheduled.discard(node_id)
        sent = self.next_request(node_id)
        if sent is not None:
            future = self.peers.send(node_id, sent.request, timeout_s=TIMEOUT_S, at_least=self.at_least)
            on_set(future, partial(self._answered, sent))

    def _answered(self, sent: S, answer: Answer) -> None:
        if isinstance(answer, Error):
            log.debug("node %d was not reached, which is tried again: %s", sent.node_id, answer.error)
            self.answered(sent, None)
        else:
            self.answered(sent, answer.unwrap())
        self.send_soon(sent.node_id)
