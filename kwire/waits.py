"""Waiting for one value: how a request waits for what another request, or a deadline, brings about.

A JoinGroup waits in a `Slot` for its rebalance. Fetches do not come here: they wait on their socket as well (see
`kwire.connection.ParkedFetch`).
"""

from __future__ import annotations

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
