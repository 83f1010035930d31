"""The loop that serves the sockets of all connections: who has something to read, who was woken, whose time is over.

As Kafka's network `Processor`, it asks the operating system once for everything that is ready and calls each
connection in turn; a request that is answered at once costs no task switch and no system calls but those of its bytes.

It is the thread's own loop, and trio its guest (`host`): what trio's tasks wait for (accepting, deadlines of groups,
housekeeping, a stop) is watched from a thread beside it, which rings a bell here. So a broker with little to do sleeps
and wakes by one system call. As a task of trio's it would pay some 12 microseconds more for each such pause, which is
what most requests of a moderate load begin with.

**Spinning.** A broker that sleeps has to be woken: the kernel interrupts a core that was halted, and what follows runs
on cold caches. Where the next request comes sooner than that costs, it is cheaper, and much quicker, to ask again and
again for an instant (`spin_s`). Whether that pays is learnt from the pauses before: a broker that is idle, or whose
clients take their time, does not spin.
"""

from __future__ import annotations

import heapq
import math
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from kwire.network.poll import READ, new_poll

if TYPE_CHECKING:
    from outcome import Outcome

EVENTS_PER_TURN = 64
"""No more sockets are served before everything else has its turn; those that were left out come first in the next."""

SHORTEST_PAUSE_S = 20e-6
"""Asking the operating system takes less."""

CALLS_PER_TURN = 64
"""One append may wake thousands of fetches; sockets have their turn in between."""

LEAST_TIMERS = 64
"""So few are not worth looking through for obsolete ones."""


class Timer:
    """Calls `callback` once when its deadline has come. Moving it later, and stopping it, costs next to nothing."""

    __slots__ = ("callback", "deadline", "due_in_heap")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.deadline = math.inf
        self.due_in_heap = math.inf

    def stop(self) -> None:
        self.deadline = math.inf

    def forget(self) -> None:
        """Stops it for good, and lets go of whom it would have called."""
        self.stop()
        self.callback = _nothing


def _nothing() -> None:
    pass


class SpinMemory:
    """Whether the pause that begins now is likely to be short: learnt from those before.

    A saturating counter, as a processor has for each branch. A spin in vain counts for several short pauses: it has
    cost something.
    """

    __slots__ = ("_score",)

    WORTH_IT = 2
    MOST = 5
    IN_VAIN = 3

    def __init__(self) -> None:
        self._score = 0

    @property
    def is_short_expected(self) -> bool:
        return self._score >= self.WORTH_IT

    def was_short(self) -> None:
        self._score = min(self._score + 1, self.MOST)

    def was_long(self) -> None:
        self._score = min(self._score, 0)

    def was_in_vain(self) -> None:
        self._score -= self.IN_VAIN


class _Bell:
    """Wakes a processor that sleeps, from any thread."""

    def __init__(self) -> None:
        self.socket, self._far = socket.socketpair()
        self.socket.setblocking(False)
        self._far.setblocking(False)

    def __enter__(self) -> _Bell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()
        self._far.close()

    def ring(self) -> None:
        with suppress(BlockingIOError):  # it rings already
            self._far.send(b"!")

    def on_rung(self, _: int) -> None:
        with suppress(BlockingIOError):
            while self.socket.recv(4096):
                pass


class Processor:
    """Calls back connections, in the thread that runs trio.

    spin_s: how long it may ask for the next request before it sleeps; 0 never does. Times are trio's, in seconds.
    `now` is the time at which the turn began that goes on; `pauses` counts how often there was nothing to do.
    """

    def __init__(self, *, spin_s: float = 0.0) -> None:
        self.now = 0.0
        self.pauses = 0
        self._spin_s = spin_s
        self._poll = new_poll()
        self._on_ready: dict[int, Callable[[int], None]] = {}
        self._soon: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._most_timers = LEAST_TIMERS
        self._order = count()
        self._memory = SpinMemory()

    # For the connections

    def add(self, sock: socket.socket, on_ready: Callable[[int], None]) -> None:
        """From now on calls `on_ready(READ)`, once a turn, while the socket has something to read."""
        fd = sock.fileno()
        self._poll.register(fd, READ)
        self._on_ready[fd] = on_ready

    def watch(self, sock: socket.socket, interest: int) -> None:
        """From now on it is called while the socket can be read (READ) or written (WRITE), and not for the other."""
        self._poll.modify(sock.fileno(), interest)

    def remove(self, sock: socket.socket) -> None:
        """Before the socket is closed; it is not called any more."""
        fd = sock.fileno()
        self._poll.unregister(fd)
        del self._on_ready[fd]

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Calls `callback` after what is going on at the moment. To be called from the loop's thread."""
        self._soon.append(callback)

    def start_timer(self, timer: Timer, deadline: float) -> None:
        """Has the timer's callback called at `deadline`, instead of at any time that it was told before."""
        timer.deadline = deadline
        # What stands in the heap may be too early: it is looked at again then. So a timer that is moved on and on, as
        # that of a consumer which waits for each record, costs an entry only now and then.
        if deadline < timer.due_in_heap:
            if len(self._timers) >= self._most_timers:
                self._drop_obsolete_timers()
            timer.due_in_heap = deadline
            heapq.heappush(self._timers, (deadline, next(self._order), timer))

    def close(self) -> None:
        """After the last connection."""
        self._poll.close()

    # The loop

    def host(self, main: Callable[[], Awaitable[None]], *, clock: trio.abc.Clock | None = None) -> None:
        """Serves in this thread until `main`, a task of trio as its guest, is over. Raises what that raises.

        The time is `clock`'s, or the system's.
        """
        done: list[Outcome[None]] = []
        scope = trio.CancelScope()

        async def guest() -> None:
            with scope:
                await main()

        with _Bell() as bell:
            self.add(bell.socket, bell.on_rung)

            def call_soon_from_any_thread(callback: Callable[[], object]) -> None:
                self._soon.append(callback)
                bell.ring()

            trio.lowlevel.start_guest_run(
                guest,
                run_sync_soon_threadsafe=call_soon_from_any_thread,
                run_sync_soon_not_threadsafe=self._soon.append,
                done_callback=done.append,
                clock=clock,
                restrict_keyboard_interrupt_to_checkpoints=True,
            )
            time = trio.lowlevel.current_clock().current_time
            try:
                self._serve_until(done, time)
            finally:
                # After an error of our own trio's tasks come to their end as after one of theirs.
                scope.cancel()
                self._serve_until(done, time)
                self.remove(bell.socket)
        done[0].unwrap()

    def _serve_until(self, done: list[Outcome[None]], time: Callable[[], float]) -> None:
        poll, soon, timers = self._poll.poll, self._soon, self._timers
        while not done:
            if soon:
                events = poll(0, EVENTS_PER_TURN)
            else:
                began = time()
                events = self._spin(time)
                if not events:
                    slept = time()
                    events = poll(max(timers[0][0] - slept, 0) if timers else -1, EVENTS_PER_TURN)
                    self._has_slept(time() - slept)
                if time() - began > SHORTEST_PAUSE_S:
                    self.pauses += 1
            self._turn(events, time())

    def _turn(self, events: list[tuple[int, int]], now: float) -> None:
        """Calls whom it concerns, now."""
        self.now = now
        on_ready, soon = self._on_ready, self._soon
        for fd, mask in events:
            call = on_ready.get(fd)
            if call is not None:  # or else it was closed in this turn
                call(mask)
        for _ in range(min(len(soon), CALLS_PER_TURN)):
            soon.popleft()()
        if self._timers and self._timers[0][0] <= now:
            self._call_due_timers()

    def _spin(self, time: Callable[[], float]) -> list[tuple[int, int]]:
        """Asks for the next request for a while, if it is likely to come; what has become ready."""
        if not self._spin_s or not self._memory.is_short_expected:
            return []
        poll = self._poll.poll
        end = time() + self._spin_s
        while not (events := poll(0, EVENTS_PER_TURN)):
            if time() >= end:
                self._memory.was_in_vain()
                return []
        self._memory.was_short()
        return events

    def _has_slept(self, pause_s: float) -> None:
        # Half of such a pause was the waking up, which a spin would have saved.
        if pause_s < 2 * self._spin_s:
            self._memory.was_short()
        else:
            self._memory.was_long()

    def _drop_obsolete_timers(self) -> None:
        """Entries remain of timers that were stopped, or moved to an earlier time: half of the heap at the most."""
        kept = []
        for entry in self._timers:
            due, _, timer = entry
            if due == timer.due_in_heap:
                if timer.deadline < math.inf:
                    kept.append(entry)
                else:
                    timer.due_in_heap = math.inf
        self._timers[:] = kept  # in place: `_call_due_timers` may be at it
        heapq.heapify(self._timers)
        self._most_timers = 2 * len(kept) + LEAST_TIMERS

    def _call_due_timers(self) -> None:
        timers = self._timers
        now = self.now
        while timers and timers[0][0] <= now:
            due, _, timer = heapq.heappop(timers)
            if due != timer.due_in_heap:
                continue  # the timer was moved to an earlier time, and that entry has been here
            timer.due_in_heap = math.inf
            if timer.deadline <= now:
                timer.stop()
                timer.callback()
            elif timer.deadline < math.inf:
                self.start_timer(timer, timer.deadline)
