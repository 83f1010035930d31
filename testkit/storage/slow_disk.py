"""A disk in memory whose syncs a test can delay and let fail."""

from __future__ import annotations

import os
import threading

from kwire_storage.disk.memory_disk import MemoryDisk

DEADLINE_S = 20


class SlowDisk(MemoryDisk):
    """Each sync of the records of topic `topic` waits until it is released, while `holds`."""

    def __init__(self, topic: str = "t") -> None:
        super().__init__()
        self._prefix = f"{topic}-"
        self.syncs: list[str] = []
        self.errors: dict[str, list[int]] = {}
        """Errnos for the next operations on its records, by operation."""
        self.holds = True
        self._begun = threading.Semaphore(0)
        self._may_end = threading.Semaphore(0)
        self.before_operation = self._before

    def _before(self, operation: str, path: str) -> None:
        if not path.startswith(self._prefix) or not path.endswith(".log"):
            return
        if operation == "sync":
            self.syncs.append(path)
            if self.holds:
                self._begun.release()
                assert self._may_end.acquire(timeout=DEADLINE_S)
        if self.errors.get(operation):
            code = self.errors[operation].pop(0)
            raise OSError(code, os.strerror(code), path)

    def wait_for_sync(self) -> None:
        """Returns when the next sync has begun."""
        assert self._begun.acquire(timeout=DEADLINE_S), "no sync has begun"

    def let_sync_end(self) -> None:
        self._may_end.release()
