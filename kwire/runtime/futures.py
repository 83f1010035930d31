"""Futures: a request waits for a value from another request, or for a deadline.

A handler that must wait is a coroutine that awaits a `Future`. Its connection drives it, and resumes it when the
future is set (see `kwire.network.connection`). So a waiting request has no task, and handlers do not depend on trio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar, cast

from outcome import Outcome, acapture

T = TypeVar("T")

_EMPTY = object()


class Future(Generic[T]):
    """A value that is set once and awaited by at most one coroutine. It may be set before, or without, a waiter.

    The connection calls `give_up` after `timeout_s`, and, with `ends_on_input`, when the peer sends another request or
    closes the connection.
    """

    __slots__ = ("_on_set", "_value", "timeout_s")

    ends_on_input = False

    def __init__(self, timeout_s: float = math.inf) -> None:
        self.timeout_s = timeout_s
        self._value: object = _EMPTY
        self._on_set: Callable[[], None] | None = None

    def set(self, value: T) -> None:
        assert self._value is _EMPTY, "a future is set once"
        self._value = value
        if self._on_set is not None:
            self._on_set()

    @property
    def is_set(self) -> bool:
        return self._value is not _EMPTY

    @property
    def value(self) -> T:
        """The value of a future that is set."""
        assert self._value is not _EMPTY, "it is not set yet"
        return cast(T, self._value)

    def when_set(self, callback: Callable[[], None]) -> None:
        """Makes `set` call `callback`; for the code that drives the waiting coroutine."""
        assert self._value is _EMPTY, "it is set already"
        assert self._on_set is None, "a future has one waiter"
        self._on_set = callback

    def give_up(self) -> None:
        """Called after `timeout_s`, or when the peer has sent another request or closed the connection."""
        raise AssertionError("only a wait that can end without its value is given up")

    def __await__(self) -> Generator[Future[T], None, T]:
        if self._value is _EMPTY:
            yield self
        return cast(T, self._value)


def drive(coroutine: Coroutine[Future[Any], None, object]) -> None:
    """Runs a coroutine that awaits futures and has no connection. A future that is set resumes it until its next wait.

    Its errors are raised by `drive`, or by the `Future.set` that resumed it.
    """

    def step() -> None:
        try:
            future = coroutine.send(None)
        except StopIteration:
            return
        future.when_set(step)

    step()


def begun(coroutine: Coroutine[Future[Any], None, T]) -> Future[Outcome[T]]:
    """Runs a coroutine up to its first wait, and returns. It continues when its futures are set.

    The future gets its result or its error.
    """
    done: Future[Outcome[T]] = Future()

    async def run() -> None:
        done.set(await acapture(lambda: coroutine))

    drive(run())
    return done


def at_once(coroutine: Coroutine[Future[Any], None, T]) -> T:
    """Returns the result of a coroutine whose futures are all set already, as at startup, when no other work runs."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    coroutine.close()
    raise AssertionError("it waits")


class Pause(Future[None]):
    """A pause of fixed length."""

    __slots__ = ()

    def give_up(self) -> None:
        if not self.is_set:
            self.set(None)


class Waiter(Protocol):
    """Waits for a change of a partition."""

    def wake(self) -> None:
        """Called when the partition has changed."""


class ParkedFetch(Future[bool]):
    """A fetch that waits for data. Set to True if it was woken, to False after its time.

    It ends after its time, and also with the next request of its connection. The Java consumer sends its next fetch
    before its ListOffsets; an empty response at once saves each of Spark's micro-batches the whole fetch.max.wait.ms.
    """

    __slots__ = ()

    ends_on_input = True

    def wake(self) -> None:
        """Ends the wait: a partition of the fetch has changed, so there may be enough data now."""
        if not self.is_set:
            self.set(True)

    def give_up(self) -> None:
        if not self.is_set:
            self.set(False)
