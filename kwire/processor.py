"""One task that serves the sockets of all connections: who has something to read, who was woken, whose time is over.

As Kafka's network `Processor`, it asks the operating system once for everything that is ready and calls each
connection in turn; a request that is answered at once costs no task switch and no system calls but those of its bytes.
trio, whose loop it is a task of, is asked when there is nothing to do, and at least once a millisecond, so that the
tasks beside it (accepting, deadlines of groups, housekeeping, a stop) have their turn.

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
from collections.abc import Callable
from itertools import count

import trio

from kwire.poll import READ, new_poll

MAX_S_WITHOUT_TRIO = 0.001
"""The other tasks of the loop wait for no longer than this, and what one turn takes."""

EVENTS_PER_LOOK = 16
"""So often among the connections that are ready at once the clock is looked at: a thousand may be."""

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


class Processor:
    """Calls back connections, in the thread that runs trio.

    spin_s: how long it may ask for the next request before it sleeps; 0 never does. Times are trio's, in seconds.
    `now` is the time at which the turn began that goes on.
    """

    def __init__(self, *, spin_s: float = 0.0) -> None:
        self.now = 0.0
        self._spin_s = spin_s
        self._poll = new_poll()
        self._on_ready: dict[int, Callable[[int], None]] = {}
        self._soon: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._most_timers = LEAST_TIMERS
        self._order = count()
        self._sleep: trio.CancelScope | None = None
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

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Calls `callback` after what is going on at the moment. To be called from the loop's thread."""
        self._soon.append(callback)
        if self._sleep is not None:
            self._sleep.cancel()

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

    async def run(self) -> None:
        """Serves until it is cancelled."""
        poll, on_ready, soon = self._poll.poll, self._on_ready, self._soon
        time = trio.lowlevel.current_clock().current_time
        last_checkpoint = time()
        while True:
            events = poll(0)
            if not events and not soon:
                events = self._spin(time)
                if not events:
                    last_checkpoint = await self._rest(time)
            self.now = now = time()
            for number, (fd, mask) in enumerate(events, 1):
                call = on_ready.get(fd)
                if call is not None:  # or else it was closed in this turn
                    call(mask)
                if number % EVENTS_PER_LOOK == 0:
                    self.now = now = time()
                    if now - last_checkpoint > MAX_S_WITHOUT_TRIO:
                        await trio.lowlevel.checkpoint()
                        last_checkpoint = now
            for _ in range(min(len(soon), CALLS_PER_TURN)):
                soon.popleft()()
            if self._timers and self._timers[0][0] <= now:
                self._call_due_timers()
            if now - last_checkpoint > MAX_S_WITHOUT_TRIO:
                await trio.lowlevel.checkpoint()
                last_checkpoint = now

    def _spin(self, time: Callable[[], float]) -> list[tuple[int, int]]:
        """Asks for the next request for a while, if it is likely to come; what has become ready."""
        if not self._spin_s or not self._memory.is_short_expected:
            return []
        poll = self._poll.poll
        end = time() + self._spin_s
        while not (events := poll(0)):
            if time() >= end:
                self._memory.was_in_vain()
                return []
        self._memory.was_short()
        return events

    async def _rest(self, time: Callable[[], float]) -> float:
        """Sleeps until a socket is ready, somebody calls call_soon, or the next timer is due; the time after that."""
        began = time()
        with trio.CancelScope(deadline=self._timers[0][0] if self._timers else math.inf) as self._sleep:
            await trio.lowlevel.wait_readable(self._poll.fileno())
        self._sleep = None
        now = time()
        # Half of such a pause was the waking up, which a spin would have saved.
        if now - began < 2 * self._spin_s:
            self._memory.was_short()
        else:
            self._memory.was_long()
        return now

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
