"""The loop that serves all connections: sockets that are ready, callbacks that were scheduled, timers that are due.

Like Kafka's network `Processor`, it polls the operating system once for all sockets that are ready and calls each
connection in turn. A request that is answered at once costs no task switch, and no system calls except those that
receive and send its bytes.

It is the thread's main loop, and trio runs in it as a guest (`host`). A second thread watches the events that trio's
tasks wait for (accepting, deadlines of groups, housekeeping, a stop) and wakes this loop. So a broker with little work
sleeps and wakes with one system call. As a task of trio, the loop would need about 12 microseconds more for each such
pause, and under moderate load most requests begin with a pause.

**Spinning.** Waking a sleeping broker has a cost: the kernel interrupts a halted core, and the code after that runs on
cold caches. If the next request comes sooner than that, it is cheaper, and much faster, to poll repeatedly for a short
time (`spin_s`). The loop predicts from earlier pauses whether this pays: a broker that is idle, or whose clients are
slow, does not spin.
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

from kwire.runtime.callbacks import ignore
from kwire.runtime.guest_clock import GuestClock
from kwire.runtime.poll import READ, new_poll

if TYPE_CHECKING:
    from outcome import Outcome

EVENTS_PER_TURN = 64
"""The number of sockets after which all other work has its turn. Sockets that were left out come first in the next
turn."""

SHORTEST_PAUSE_S = 20e-6
"""The minimum time that counts as a pause. A poll of the operating system takes less."""

CALLS_PER_TURN = 64
"""The maximum number of callbacks in a turn. One append may wake thousands of fetches; sockets are served in
between."""

LEAST_TIMERS = 64
"""The number of timers below which it is not worth removing the obsolete ones."""


class Timer:
    """Calls `callback` once at its deadline. Moving it later and stopping it are nearly free."""

    __slots__ = ("callback", "deadline", "due_in_heap")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.deadline = math.inf
        self.due_in_heap = math.inf

    def stop(self) -> None:
        self.deadline = math.inf

    def forget(self) -> None:
        """Stops the timer for good and drops the reference to its callback."""
        self.stop()
        self.callback = ignore


class SpinMemory:
    """Predicts from earlier pauses whether the pause that begins now will be short.

    A saturating counter, like a CPU's branch predictor. A spin in vain outweighs several short pauses, because it costs
    time.
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
        # Either it is ringing already, or the loop has found the callback by itself, and has ended since.
        with suppress(OSError):
            self._far.send(b"!")

    def on_rung(self, _: int) -> None:
        with suppress(BlockingIOError):
            while self.socket.recv(4096):
                pass


class Processor:
    """Calls the callbacks of connections, in the thread that runs trio.

    spin_s: the maximum time of polling for the next request before it sleeps; with 0 it never spins. Times are trio's,
    in seconds. `now` is the time at which the current turn began; `pauses` counts the pauses without work.
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
        """Watches the socket: calls `on_ready(READ)` once per turn while it is readable."""
        fd = sock.fileno()
        self._poll.register(fd, READ)
        self._on_ready[fd] = on_ready

    def watch(self, sock: socket.socket, interest: int) -> None:
        """Changes the events: calls `on_ready` while the socket is readable (READ), or while it is writable (WRITE)."""
        self._poll.modify(sock.fileno(), interest)

    def remove(self, sock: socket.socket) -> None:
        """Stops watching the socket: `on_ready` is not called any more. Must be called before the socket is closed."""
        fd = sock.fileno()
        self._poll.unregister(fd)
        del self._on_ready[fd]

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Calls `callback` after the current callback has returned. Only for the loop's thread."""
        self._soon.append(callback)

    def start_timer(self, timer: Timer, deadline: float) -> None:
        """Sets the timer's deadline, or moves it: `deadline` replaces any earlier one."""
        timer.deadline = deadline
        # The entry in the heap may be too early; then it is checked again. So a timer that is moved again and again,
        # such as that of a consumer that waits for each record, rarely needs a new entry.
        if deadline < timer.due_in_heap:
            if len(self._timers) >= self._most_timers:
                self._drop_obsolete_timers()
            timer.due_in_heap = deadline
            heapq.heappush(self._timers, (deadline, next(self._order), timer))

    def close(self) -> None:
        """Closes the poll; must be called after the last connection is closed."""
        self._poll.close()

    # The loop

    def host(self, main: Callable[[], Awaitable[None]], *, clock: trio.abc.Clock | None = None) -> None:
        """Serves in this thread until `main`, which runs as a trio guest, returns. Raises what `main` raises.

        Times come from `clock`, or from the system's clock if there is none. With the system's clock it also serves if
        no thread can be started.
        """
        done: list[Outcome[None]] = []
        own = GuestClock() if clock is None else None
        scope = trio.CancelScope()

        async def guest() -> None:
            with scope:
                await main()

        with _Bell() as bell:
            self.add(bell.socket, bell.on_rung)

            def call_soon_from_any_thread(callback: Callable[[], object]) -> None:
                if own is not None:
                    own.thread_seen()
                self._soon.append(callback)
                bell.ring()

            def call_soon(callback: Callable[[], object]) -> None:
                if own is not None and (pause_s := own.take_pause_s()):
                    self.start_timer(Timer(callback), own.current_time() + pause_s)
                else:
                    self._soon.append(callback)

            trio.lowlevel.start_guest_run(
                guest,
                run_sync_soon_threadsafe=call_soon_from_any_thread,
                run_sync_soon_not_threadsafe=call_soon,
                done_callback=done.append,
                clock=own or clock,
                restrict_keyboard_interrupt_to_checkpoints=True,
            )
            time = trio.lowlevel.current_clock().current_time
            try:
                self._serve_until(done, time)
            finally:
                # After an error of this loop, trio's tasks end as they do after an error of their own.
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
        """Calls every callback that is due."""
        self.now = now
        on_ready, soon = self._on_ready, self._soon
        for fd, mask in events:
            call = on_ready.get(fd)
            if call is not None:  # None: it was closed in this turn
                call(mask)
        for _ in range(min(len(soon), CALLS_PER_TURN)):
            soon.popleft()()
        if self._timers and self._timers[0][0] <= now:
            self._call_due_timers()

    def _spin(self, time: Callable[[], float]) -> list[tuple[int, int]]:
        """Polls for the next request for a short time, if it is likely to come soon. Returns what has become ready."""
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
        # Half of such a pause is the wake-up itself, which a spin saves.
        if pause_s < 2 * self._spin_s:
            self._memory.was_short()
        else:
            self._memory.was_long()

    def _drop_obsolete_timers(self) -> None:
        """Removes the heap's entries of stopped timers, and of timers moved to an earlier time: at most half of it."""
        running = []
        for entry in self._timers:
            due, _, timer = entry
            if due == timer.due_in_heap:
                if timer.deadline < math.inf:
                    running.append(entry)
                else:
                    timer.due_in_heap = math.inf
        self._timers[:] = running  # in place: `_call_due_timers` may be using the list
        heapq.heapify(self._timers)
        self._most_timers = 2 * len(running) + LEAST_TIMERS

    def _call_due_timers(self) -> None:
        timers = self._timers
        now = self.now
        while timers and timers[0][0] <= now:
            due, _, timer = heapq.heappop(timers)
            if due != timer.due_in_heap:
                continue  # the timer was moved to an earlier time, whose entry has been handled
            timer.due_in_heap = math.inf
            if timer.deadline <= now:
                timer.stop()
                timer.callback()
            elif timer.deadline < math.inf:
                self.start_timer(timer, timer.deadline)
