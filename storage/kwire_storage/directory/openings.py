"""Opens many logs after an unclean stop, concurrently, and reports the progress.

Each `LogOpening` is one task; the caller decides how many run at a time. Another thread may read the progress while
they run.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kwire_storage import names
from kwire_storage.config import LogConfig
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.errors import CorruptLogError
from kwire_storage.log.recovery import first_to_scan

_MIB = 1 << 20


@attrs.define(eq=False)
class LogOpening:
    """Opens one log in its folder. `run` raises nothing; `error` has the error.

    A process that dies between a write and its fsync leaves records that a power cut may still remove. If
    flush.messages requires it, they are flushed before clients can read them or learn that they exist.
    """

    folder: LogDir
    topic: str
    partition: int
    config: LogConfig
    now_ms: int
    size_in_bytes: int = 0
    """The bytes to be scanned."""
    scanned_bytes: int = 0
    is_done: bool = False
    error: OSError | CorruptLogError | None = None

    def measure(self) -> None:
        """Determines `size_in_bytes`. Raises OSError."""
        disk, path = self.folder.disk, names.partition_folder(self.topic, self.partition)
        parsed = map(names.parse_offset_name, disk.listdir(path))
        bases = sorted(it[0] for it in parsed if it is not None and it[1] == names.LOG)
        recovery_point = self.folder.checkpointed((self.topic, self.partition)).recovery_point
        scanned = bases[first_to_scan(bases, recovery_point) :]
        self.size_in_bytes = sum(disk.size(f"{path}/{names.offset_name(base, names.LOG)}") for base in scanned)

    def run(self) -> None:
        try:
            log = self.folder.open_log(
                self.topic, self.partition, self.config, now_ms=self.now_ms, on_scanned=self._has_scanned
            )
            if log.log_end_offset - log.recovery_point >= self.config.flush_messages:
                log.run_flush(log.begin_flush())
        except (OSError, CorruptLogError) as error:
            self.error = error
        self.is_done = True

    def _has_scanned(self, size: int) -> None:
        self.scanned_bytes += size


@attrs.frozen
class OpeningProgress:
    """The progress of opening some logs; sizes in bytes."""

    logs: int
    logs_done: int
    size: int
    size_done: int

    @classmethod
    def of(cls, openings: Iterable[LogOpening]) -> OpeningProgress:
        openings = list(openings)
        return cls(
            len(openings),
            sum(opening.is_done for opening in openings),
            sum(opening.size_in_bytes for opening in openings),
            sum(opening.size_in_bytes if opening.is_done else opening.scanned_bytes for opening in openings),
        )

    def __str__(self) -> str:
        done, size = (-(-count // _MIB) for count in (self.size_done, self.size))
        return f"{self.logs_done:,} of {self.logs:,} logs, {done:,} of {size:,} MiB checked"
