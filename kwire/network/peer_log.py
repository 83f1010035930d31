"""Rate-limited log lines about misbehaving peers, with a count of the lines that were left out.

A client that sends garbage can have its connection closed ten thousand times a second, and each close logs a line. So
lines of one kind are counted per period. Lines above the limit are left out, and their number is logged with the next
line that is written, or when the period ends.
"""

from __future__ import annotations

import logging
import math

from kwire.runtime.processor import Processor, Timer
from kwire.security.audit import LOGGER

log = logging.getLogger(__name__)

PERIOD_S = 1.0
MOST_LINES = 10
"""The maximum number of lines in a period about connections that were closed or refused."""

MOST_TRACEBACKS = 2
"""The maximum number of tracebacks in a period. One is about 3 KB, and tracebacks in the same period are mostly of the
same bug."""


class LineLimit:
    """A limit of `most` lines per `period_s`. A period begins with the first line after the previous one has ended."""

    def __init__(self, most: int, period_s: float) -> None:
        self.most = most
        self.period_s = period_s
        self.ends_at = -math.inf
        """The end of the current period, in seconds."""
        self._count = 0
        self._left_out = 0

    def admits(self, now: float) -> bool:
        """Returns True if one more line may be written; if not, it counts as left out."""
        if now >= self.ends_at:
            self.ends_at = now + self.period_s
            self._count = 0
        if self._count < self.most:
            self._count += 1
            return True
        self._left_out += 1
        return False

    def take_left_out(self) -> int:
        """Returns the number of lines that were left out since the last call."""
        count, self._left_out = self._left_out, 0
        return count


class PeerLog:
    """Lines of one kind, `what` in the plural. `now` is the processor's time, in seconds."""

    def __init__(self, what: str, most: int, processor: Processor, logger: logging.Logger = log) -> None:
        self._what = what
        self._log = logger
        self._limit = LineLimit(most, PERIOD_S)
        self._processor = processor
        self._timer = Timer(self.log_left_out)

    def write(self, level: int, line: str, *arguments: object, now: float, with_traceback: bool = False) -> None:
        if not self._log.isEnabledFor(level):
            return
        if self._limit.admits(now):
            self.log_left_out()
            self._log.log(level, line, *arguments, exc_info=with_traceback)
        elif self._timer.deadline == math.inf:
            self._processor.start_timer(self._timer, self._limit.ends_at)

    def log_left_out(self) -> None:
        """Logs the number of lines left out, at the end of a period and when the server stops."""
        count = self._limit.take_left_out()
        if count:
            self._log.warning("left out %d more %s", count, self._what)


class PeerLogs:
    """The logs of one server. `max_audit_lines`: per period.

    Tracebacks have their own limit, so that garbage does not hide a bug.
    """

    def __init__(self, processor: Processor, max_audit_lines: int) -> None:
        self.audit = PeerLog("lines of the audit log", max_audit_lines, processor, LOGGER)
        self.closings = PeerLog("lines about connections that were closed or refused", MOST_LINES, processor)
        self.bugs = PeerLog("tracebacks of bugs", MOST_TRACEBACKS, processor)

    def log_left_out(self) -> None:
        self.audit.log_left_out()
        self.closings.log_left_out()
        self.bugs.log_left_out()
