"""The clock of the loop's trio guest, which prevents a wait in a thread that cannot be started.

When all of trio's tasks wait, trio polls the operating system for events in a thread of its cache. A thread of the
cache ends after ten seconds without work, and trio's loop fails if it then cannot start a new one. Before that, trio
calls its clock for the time to sleep. This clock returns 0 while there is no thread, and trio, instead of waiting in a
thread, schedules its next turn.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

import trio

from kwire.runtime.callbacks import ignore

log = logging.getLogger(__name__)

POLL_S: Final = 0.01
"""The pause between two turns of trio while it has no thread to wait in."""

FRESH_S: Final = 3.0
"""The time for which a thread certainly exists after it has done work: less than the ten seconds of trio's cache."""


class GuestClock(trio.abc.Clock):
    """The system's clock, for one run of trio in guest mode."""

    def __init__(self) -> None:
        self._is_without_thread = False
        """True if the last time to sleep was 0 because no thread could be started."""
        self._thread_seen_s = -FRESH_S
        self._is_warned = False

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return time.perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        now = time.perf_counter()
        self._is_without_thread = now - self._thread_seen_s >= FRESH_S and not self._has_thread()
        return 0.0 if self._is_without_thread else deadline - now

    def take_pause_s(self) -> float:
        """Returns the pause before trio's next turn, if trio has work or could not sleep; 0 for at once."""
        pause_s = POLL_S if self._is_without_thread else 0.0
        self._is_without_thread = False
        return pause_s

    def thread_seen(self) -> None:
        """Records that a thread of trio's cache is free, or will be soon. May be called in any thread."""
        self._thread_seen_s = time.perf_counter()

    def _has_thread(self) -> bool:
        """Returns True if a thread of the cache can run a task that does nothing. It is free for some seconds then."""
        done = threading.Event()
        try:
            trio.lowlevel.start_thread_soon(ignore, lambda _: done.set())
        except (RuntimeError, MemoryError):  # Python raises RuntimeError for EAGAIN
            if not self._is_warned:
                self._is_warned = True
                log.warning(
                    "no thread can be started to wait for events, so the broker looks for them every %d ms until one "
                    "can be; raise the limit on processes or threads (ulimit -u)",
                    round(1000 * POLL_S),
                )
            return False
        self._is_warned = False
        done.wait()
        self.thread_seen()
        return True
