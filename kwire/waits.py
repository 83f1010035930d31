"""Waiting, and nothing else: the two ways in which a request may be parked.

* `Slot`: one value for one waiter (a JoinGroup waits for its rebalance).
* `ReadableWait`: a fetch with nothing to return waits for an append, for its deadline, or for the *next request on
  the same connection*. The Java consumer pipelines its next fetch in front of its ListOffsets; answering the parked
  fetch at once, empty, spares Spark's micro-batches the whole fetch.max.wait.ms. It is one trio task throughout:
  what wakes it cancels the scope around its `wait_readable`.
"""

from __future__ import annotations

import socket
from typing import Generic, TypeVar, cast

import trio

T = TypeVar("T")

_EMPTY = object()


class Slot(Generic[T]):
    """A value set once, awaited by at most one task. Setting it before, or without, a waiter is fine."""

    __slots__ = ("_task", "_value")

    def __init__(self) -> None:
        self._value: object = _EMPTY
        self._task: trio.lowlevel.Task | None = None

    def set(self, value: T) -> None:
        assert self._value is _EMPTY, "a slot is set once"
        self._value = value
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    @property
    def is_set(self) -> bool:
        return self._value is not _EMPTY

    async def get(self) -> T:
        if self._value is _EMPTY:
            assert self._task is None, "a slot has one waiter"
            self._task = trio.lowlevel.current_task()

            def abort(_: object) -> trio.lowlevel.Abort:
                self._task = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        return cast(T, self._value)


class ReadableWait:
    """Parks the calling task until `sock` is readable, `wake()` is called or the time is over."""

    __slots__ = ("_scope", "_sock", "_woken")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._scope: trio.CancelScope | None = None
        self._woken = False

    def wake(self) -> None:
        self._woken = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait(self, timeout_s: float) -> None:
        if self._woken:
            return
        with trio.move_on_after(timeout_s) as self._scope:
            await trio.lowlevel.wait_readable(self._sock)
        self._scope = None
