"""The clean stop of logs, in three steps each, so that many can wait for the disk concurrently."""

from __future__ import annotations

from collections.abc import Callable

from kwire_storage.log.durability import Flush
from kwire_storage.log.log import Log

_CLOSED_TOGETHER = 256
"""The maximum number of logs that are closed together: pending syncs hold open files and contents in memory."""


class Closing:
    """The clean stop of one log: begun here, synced in any thread, finished here."""

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
        if self.flush is not None:
            if self.error is None:
                self.log.finish_flush(self.flush)
            else:
                self.log.give_up_flush(self.flush)
        return self.error is None


def in_turn(tasks: list[Callable[[], None]]) -> None:
    for task in tasks:
        task()


def close_all(logs: list[Log], run_all: Callable[[list[Callable[[], None]]], None]) -> list[OSError]:
    """Closes logs, some hundred at a time; `run_all` gets the syncs. Returns the errors, log by log."""
    errors: list[OSError] = []
    for first in range(0, len(logs), _CLOSED_TOGETHER):
        closings = [Closing(log) for log in logs[first : first + _CLOSED_TOGETHER]]
        run_all([closing.run for closing in closings if closing.has_work])
        errors += [closing.error for closing in closings if not closing.finish() and closing.error is not None]
    return errors
