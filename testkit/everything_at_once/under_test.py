"""The broker under test: all its clocks at their fastest, several log dirs.

`log.roll.ms` and the others are the defaults of topics; the internal topics get segments so small that their compaction
never ends.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from devtools.ports import free_port
from testkit.mutants.processes import VARIABLE
from testkit.servers.brokers import SETTINGS, KwireServe

FAST = SETTINGS | {
    # A producer that still has records for a deleted topic would make it again.
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "5",
    "log.retention.check.interval.ms": "10",
    "log.flush.offset.checkpoint.interval.ms": "10",
    "log.segment.delete.delay.ms": "20",
    "log.roll.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.max.compaction.lag.ms": "500",
    "log.cleaner.delete.retention.ms": "200",
    "offsets.topic.segment.bytes": "20000",
    "transaction.state.log.segment.bytes": "20000",
    "offsets.retention.check.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "1000",  # members of groups are killed
    "num.recovery.threads.per.data.dir": "4",
    "kwire.log.max.open.files": "60",
    "kwire.log.reserve.bytes": str(4 << 20),
}

PATIENT = {"group.consumer.session.timeout.ms": "20000"}
"""Settings for members that have to wait for a connection."""

CHECKPOINT_INTERVALS_MS = ("10", "3000")
"""Each start of the broker has one of them.

With the first, a checkpoint is written at almost any moment. With the second, the last one may be stale for as long as
a topic takes to be deleted and created again.
"""

_WATCHED = (sys.executable, "-m", f"{__package__}.watched")
_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (\w+) +(.*)$")
_TRACEBACK = "Traceback (most recent call last):"
# What a broker may log at ERROR since a disk was full.
_OF_A_FULL_DISK = re.compile(r"No space left on device|is full")

_FULL = re.compile(r"others wait.*ulimit -n")


class BrokerUnderTest(KwireServe):
    """The broker, whose log is checked as it is written."""

    def __init__(
        self,
        root: Path,
        *more_folders: Path,
        complain: Callable[[str], None],
        guarded: bool,
        descriptors: int | None = None,
    ) -> None:
        """`guarded` has each worker held to its duty (testkit/basics/ownership_guard.py).

        `descriptors`: the most that it may have open.
        """
        metrics = f"127.0.0.1:{free_port()}"
        settings = FAST if descriptors is None else FAST | PATIENT
        super().__init__(root, settings | {"kwire.metrics.listen": metrics}, *more_folders)
        self.metrics_url = f"http://{metrics}/metrics"
        if guarded:
            self.kwire = _WATCHED
        if descriptors is not None:
            self.kwire = ("sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors), *self.kwire)
        self._complain = complain
        self._read_up_to = 0
        self.lines: Counter[str] = Counter()
        """The numbers of log lines by level."""
        self.was_full = 0
        """The number of log lines about connections that wait for descriptors."""

    def set_checkpoint_interval(self, interval_ms: str) -> None:
        """Sets the time between two checkpoints of offsets, from the next start on."""
        self.settings = self.settings | {"log.flush.offset.checkpoint.interval.ms": interval_ms}

    def make(self, mistake: str) -> None:
        """Makes one of `races.RACES`, from the next start on."""
        self.kwire = ("env", f"{VARIABLE}={mistake}", *_WATCHED)

    def check_log(self) -> None:
        """Complains of errors, but for those that a full disk explains, and of every traceback."""
        if not self.log_file.exists():
            return
        with self.log_file.open("rb") as file:
            file.seek(self._read_up_to)
            unread = file.read()
        whole = unread.rpartition(b"\n")[0]
        self._read_up_to += len(whole) + 1 if whole else 0
        lines = whole.decode(errors="replace").splitlines()
        for number, line in enumerate(lines):
            found = _LINE.match(line)
            if found is not None:
                self.lines[found[1]] += 1
                self.was_full += bool(_FULL.search(found[2]))
                if found[1] in ("ERROR", "CRITICAL") and not _OF_A_FULL_DISK.search(found[2]):
                    self._complain(f"the broker said: {line}")
            elif line.startswith((_TRACEBACK, "Error: ", "  + Exception Group")):
                self._complain("the broker said:\n" + "\n".join(lines[max(0, number - 1) : number + 400]))
            elif "Error" in line and "warning" not in line.lower() and not line.startswith(" "):
                self._complain(f"the broker said: {line}")
