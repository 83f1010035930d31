"""Waiting for one value: how a request waits for what another request, or a deadline, brings about.

A handler that has to wait is a coroutine which awaits a `Slot`; its connection drives it and goes on with it when the
slot is set (see `kwire.network.connection`). So there is no task for a request that waits, and no trio in the handlers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

_EMPTY = object()


class Slot(Generic[T]):
    """A value set once, awaited by at most one coroutine. Setting it before, or without, a waiter is fine.

    `timeout_s` and `ends_on_input` are for the connection: after what time, and whether on further requests or the
    peer's hanging up, it calls `give_up`.
    """

    __slots__ = ("_on_set", "_value", "timeout_s")

    ends_on_input = False

    def __init__(self, timeout_s: float = math.inf) -> None:
        self.timeout_s = timeout_s
        self._value: object = _EMPTY
        self._on_set: Callable[[], None] | None = None

    def set(self, value: T) -> None:
        assert self._value is _EMPTY, "a slot is set once"
        self._value = value
        if self._on_set is not None:
            self._on_set()

    @property
    def is_set(self) -> bool:
        return self._value is not _EMPTY

    @property
    def value(self) -> T:
        """Of a slot that is set."""
        assert self._value is not _EMPTY, "it is not set yet"
        return cast(T, self._value)

    def when_set(self, callback: Callable[[], None]) -> None:
        """`callback` is called when the slot is set, from within `set`. For whoever drives the coroutine that waits."""
        assert self._value is _EMPTY, "it is set already"
        assert self._on_set is None, "a slot has one waiter"
        self._on_set = callback

    def give_up(self) -> None:
        """The time is over, or the peer has something else to say."""
        raise AssertionError("only a wait that can end without its value is given up")

    def __await__(self) -> Generator[Slot[T], None, T]:
        if self._value is _EMPTY:
            yield self
        return cast(T, self._value)


def drive(coroutine: Coroutine[Slot[Any], None, object]) -> None:
    """Runs a coroutine that awaits slots and that no connection drives: on to its next wait, at each slot that is set.

    What it raises comes out of `drive`, or out of the `Slot.set` that let it go on.
    """

    def step() -> None:
        try:
            slot = coroutine.send(None)
        except StopIteration:
            return
        slot.when_set(step)

    step()


def at_once(coroutine: Coroutine[Slot[Any], None, T]) -> T:
    """The result of a coroutine that finds everything it awaits, as at a start, where nothing runs beside it."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    coroutine.close()
    raise AssertionError("it waits")


class ParkedFetch(Slot[bool]):
    """A fetch that waits for data: True when an event woke it, False when it waited in vain.

    It ends with its time, and with the next request of its connection as well: the Java consumer pipelines its next
    fetch in front of its ListOffsets, and answering the fetch at once, empty, spares Spark's micro-batches the whole of
    fetch.max.wait.ms.
    """

    __slots__ = ()

    ends_on_input = True

    def wake(self) -> None:
        """Something has happened to a partition it waits for; what it waits for may have come true."""
        if not self.is_set:
            self.set(True)

    def give_up(self) -> None:
        if not self.is_set:
            self.set(False)
