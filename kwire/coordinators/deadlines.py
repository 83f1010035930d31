"""Deadlines as data: a heap with lazy cancellation. Times are of the monotonic clock.

Heartbeats are a group's most frequent event, and they only move a deadline later. So a timer that is already in the
heap is not moved. Its entry stays where it is, and when the entry comes up too early it is put back at the current
deadline. A heartbeat costs two attribute writes, a member costs one heap operation per session timeout, and
`next_deadline_ms` may name a time at which nothing is due (but never one that is too late).

A cancelled timer also leaves its entry in the heap. The heap is rebuilt when most of its entries are dead.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kwire.coordinators.effects import Step

OnExpiry = Callable[["Step"], None]

_SMALL_HEAP = 64


class Deadline:
    """A deadline that can be set, moved and cancelled. `on_expiry` is called with the turn in which it is due."""

    __slots__ = ("deadline_ms", "on_expiry", "queued_at_ms")

    def __init__(self, on_expiry: OnExpiry | None = None) -> None:
        self.on_expiry = on_expiry
        self.deadline_ms: int | None = None
        self.queued_at_ms: int | None = None
        """Where its live heap entry stands, at or before the deadline; None when it has none."""


class Deadlines:
    """The timers of one shard, ordered by deadline. Equal deadlines keep the order in which they were set."""

    __slots__ = ("_cancelled", "_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Deadline]] = []
        self._sequence = 0
        self._cancelled = 0

    def schedule(self, timer: Deadline, deadline_ms: int) -> None:
        """Sets or moves the deadline; O(1) if it moves later."""
        if timer.deadline_ms is None and timer.queued_at_ms is not None:
            self._cancelled -= 1
        timer.deadline_ms = deadline_ms
        if timer.queued_at_ms is None or deadline_ms < timer.queued_at_ms:
            self._push(timer, deadline_ms)

    def cancel(self, timer: Deadline) -> None:
        if timer.deadline_ms is None:
            return
        timer.deadline_ms = None
        self._cancelled += 1
        if self._cancelled > _SMALL_HEAP and self._cancelled * 2 > len(self._heap):
            self._rebuild()

    def next_deadline_ms(self) -> int | None:
        """The latest time for the next check; nothing is due before it."""
        return self._heap[0][0] if self._heap else None

    def expire(self, step: Step) -> None:
        """Calls the due timers, up to the first append: the rest may depend on its outcome."""
        while not step.has_append and (timer := self.pop_due(step.now.monotonic_ms)) is not None:
            assert timer.on_expiry is not None
            timer.on_expiry(step)

    def pop_due(self, now_ms: int) -> Deadline | None:
        """The next timer whose deadline is at or before `now_ms`, disarmed; None when nothing more is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_at_ms, _, timer = heapq.heappop(self._heap)
            if timer.queued_at_ms != queued_at_ms:
                continue  # an entry pushed later, for an earlier deadline, spoke for this timer
            timer.queued_at_ms = None
            if timer.deadline_ms is None:
                self._cancelled -= 1
            elif timer.deadline_ms > queued_at_ms:
                self._push(timer, timer.deadline_ms)
            else:
                timer.deadline_ms = None
                return timer
        return None

    def __len__(self) -> int:
        return len(self._heap)

    def _push(self, timer: Deadline, deadline_ms: int) -> None:
        self._sequence += 1
        timer.queued_at_ms = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._sequence, timer))

    def _rebuild(self) -> None:
        live: list[tuple[int, int, Deadline]] = []
        for queued_at_ms, sequence, timer in self._heap:
            if timer.queued_at_ms != queued_at_ms:
                continue
            if timer.deadline_ms is None:
                timer.queued_at_ms = None
            else:
                live.append((queued_at_ms, sequence, timer))
        heapq.heapify(live)
        self._heap = live
        self._cancelled = 0
