"""Deadlines as data: a heap with lazy cancellation. Times are of the monotonic clock.

Heartbeats are a group's most frequent event, and they only move a deadline later. So a timer that is already in the
heap is not moved. Its entry stays where it is, and when the entry comes up too early it is put back at the current
deadline. A heartbeat costs two attribute writes, a member costs one heap operation per session timeout, and
`next_deadline_ms` may name a time at which nothing is due (but never one that is too late).

A cancelled timer also leaves its entry in the heap. The heap is rebuilt when most of its entries are dead.

Most expired timers append records. While the partition takes no records, each timer would fail, and retry soon after.
So after a lasting failure no timer is due for a pause (`PAUSES_MS`). Then one timer tries first: the others follow at
once if it succeeds, or else the next pause is longer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode

from kwire.backoff import Backoff
from kwire.coordinators.effects import Append, lasts

if TYPE_CHECKING:
    from kwire.coordinators.effects import Step

OnExpiry = Callable[["Step"], None]

PAUSES_MS: Final = Backoff(first=100, longest=5_000)
"""The pauses after failed appends and other failures."""

_SMALL_HEAP = 64


class Deadline:
    """A deadline that can be set, moved and cancelled. `on_expiry` is called with the turn in which it is due."""

    __slots__ = ("deadline_ms", "failures", "on_expiry", "queued_at_ms")

    def __init__(self, on_expiry: OnExpiry | None = None) -> None:
        self.on_expiry = on_expiry
        self.deadline_ms: int | None = None
        self.queued_at_ms: int | None = None
        """The time of its live heap entry, at or before the deadline; None when it has none."""
        self.failures = 0
        """The number of consecutive calls of `retry`. The owner resets it to 0 after a success."""


class Deadlines:
    """The timers of one shard, ordered by deadline. Equal deadlines keep the order in which they were set."""

    __slots__ = ("_cancelled", "_failures", "_heap", "_held_until_ms", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Deadline]] = []
        self._sequence = 0
        self._cancelled = 0
        self._held_until_ms = 0
        """The time before which no timer is due."""
        self._failures = 0
        """The number of consecutive failed appends. There is no pause while it is 0."""

    def schedule(self, timer: Deadline, deadline_ms: int) -> None:
        """Sets or moves the deadline; O(1) if it moves later."""
        if timer.deadline_ms is None and timer.queued_at_ms is not None:
            self._cancelled -= 1
        timer.deadline_ms = deadline_ms
        if timer.queued_at_ms is None or deadline_ms < timer.queued_at_ms:
            self._push(timer, deadline_ms)

    def retry(self, timer: Deadline, now_ms: int) -> None:
        """Reschedules a timer that has failed, after a pause that grows with each failure.

        If no records can be appended, the common pause of all timers applies instead.
        """
        timer.failures += 1
        self.schedule(timer, now_ms if now_ms < self._held_until_ms else now_ms + PAUSES_MS.after(timer.failures))

    def cancel(self, timer: Deadline) -> None:
        if timer.deadline_ms is None:
            return
        timer.deadline_ms = None
        self._cancelled += 1
        if self._cancelled > _SMALL_HEAP and self._cancelled * 2 > len(self._heap):
            self._rebuild()

    def next_deadline_ms(self) -> int | None:
        """The latest time for the next check; nothing is due before it."""
        # It is called after each request, so the usual case comes first.
        if self._failures:
            return max(self._heap[0][0], self._held_until_ms) if self._heap else None
        try:
            return self._heap[0][0]
        except IndexError:
            return None

    def expire(self, step: Step) -> None:
        """Calls the due timers, up to the first append: the rest may depend on its outcome."""
        if step.now.monotonic_ms < self._held_until_ms:
            return
        while not step.has_append and (timer := self.pop_due(step.now.monotonic_ms)) is not None:
            assert timer.on_expiry is not None
            timer.on_expiry(step)
        for effect in step.effects:
            if isinstance(effect, Append):
                self._watch(effect)

    def _watch(self, append: Append) -> None:
        then = append.then

        def appended(step: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.appends_succeed()
            elif lasts(error) and step.now.monotonic_ms >= self._held_until_ms:
                self._failures += 1
                self._held_until_ms = step.now.monotonic_ms + PAUSES_MS.after(self._failures)
            then(step, error)

        append.then = appended

    def appends_succeed(self) -> None:
        """An append has succeeded, perhaps of a request: ends the pause of due timers."""
        self._failures = self._held_until_ms = 0

    def pop_due(self, now_ms: int) -> Deadline | None:
        """The next timer whose deadline is at or before `now_ms`, disarmed; None when nothing more is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_at_ms, _, timer = heapq.heappop(self._heap)
            if timer.queued_at_ms != queued_at_ms:
                continue  # the timer had another entry, which was pushed later for an earlier deadline
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
