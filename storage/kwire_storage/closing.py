"""The clean stop of one log, in three steps, so that many logs can wait for the disk side by side."""

from __future__ import annotations

from kwire_storage.durability import Flush
from kwire_storage.log import Log


class Closing:
    """Begun here, run wherever, finished here."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.error: OSError | None = None
        self.flush: Flush | None = None
        try:
            self.flush = log.begin_close()
        except OSError as error:
            self.error = error

    @property
    def has_work(self) -> bool:
        return self.flush is not None and self.flush.has_work

    def run(self) -> None:
        assert self.flush is not None
        try:
            self.flush.run()
        except OSError as error:
            self.error = error

    def finish(self) -> bool:
        if self.error is None and self.flush is not None:
            self.log.finish_flush(self.flush)
        return self.error is None
