"""A substitute of `Processor`: notifies connections when their sockets are ready, and timers when they are due."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from kwire.runtime.poll import READ
from kwire.runtime.processor import Timer
from testkit.worlds.simulation.calendar import Calendar
from testkit.worlds.simulation.network import SimSocket


def _ignore() -> None: ...


@attrs.define(eq=False)
class _Watched:
    on_ready: Callable[[int], None]
    interest: int = READ
    is_due: bool = False


@attrs.define(eq=False)
class SimProcessor:
    """The part of a `Processor` that `Server` and its connections use."""

    calendar: Calendar
    in_process: Callable[[Callable[[], object]], None]
    """Calls something as the process does, unless it is dead."""
    pauses: int = 0
    _watched: dict[SimSocket, _Watched] = attrs.field(factory=dict)

    @property
    def now(self) -> float:
        return self.calendar.now

    def add(self, sock: SimSocket, on_ready: Callable[[int], None]) -> None:
        watched = self._watched[sock] = _Watched(on_ready)
        sock.on_change = lambda: self._check_readiness(sock, watched)
        self._check_readiness(sock, watched)

    def watch(self, sock: SimSocket, interest: int) -> None:
        watched = self._watched[sock]
        watched.interest = interest
        self._check_readiness(sock, watched)

    def remove(self, sock: SimSocket) -> None:
        del self._watched[sock]
        sock.on_change = _ignore

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.calendar.soon(lambda: self.in_process(callback))

    def start_timer(self, timer: Timer, deadline: float) -> None:
        timer.deadline = deadline
        if deadline < timer.due_in_heap:
            timer.due_in_heap = deadline
            self.calendar.at(deadline, lambda: self.in_process(lambda: self._time_is_up(timer, deadline)))

    def _time_is_up(self, timer: Timer, due: float) -> None:
        if due != timer.due_in_heap:
            return
        timer.due_in_heap = math.inf
        if timer.deadline <= self.now:
            timer.stop()
            timer.callback()
        elif timer.deadline < math.inf:
            self.start_timer(timer, timer.deadline)

    def _check_readiness(self, sock: SimSocket, watched: _Watched) -> None:
        is_ready = sock.is_readable if watched.interest == READ else sock.is_writable
        if is_ready and not watched.is_due:
            watched.is_due = True
            self.calendar.soon(lambda: self.in_process(lambda: self._call(sock, watched)))

    def _call(self, sock: SimSocket, watched: _Watched) -> None:
        watched.is_due = False
        if self._watched.get(sock) is not watched:
            return
        is_ready = sock.is_readable if watched.interest == READ else sock.is_writable
        if is_ready:
            watched.on_ready(watched.interest)
            if self._watched.get(sock) is watched:
                self._check_readiness(sock, watched)
