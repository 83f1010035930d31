"""Objects that pass between threads have one owner at a time; a second owner is a bug, and raises at once."""

from __future__ import annotations

from threading import Lock
from types import TracebackType

from kwire_storage.errors import OwnershipError


class SoleUse:
    """`with turn:` guards any use of the object. It never waits: if another thread is in it, it raises.

    So a wrong call is found where it is made, in the first test that makes it, rather than by a broken file later.
    """

    def __init__(self, of: str) -> None:
        self._of = of
        self._lock = Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise OwnershipError(f"{self._of} is in use by another thread")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
