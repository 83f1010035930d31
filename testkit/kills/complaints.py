"""The complaints of any ledger, client or thread of a lap."""

from __future__ import annotations

from collections.abc import Callable, Iterable

_MOST = 50


class Complaints(list[str]):
    """`on_complaint` is called with each, in the thread that finds it."""

    def __init__(self, on_complaint: Callable[[str], None] = lambda _what: None) -> None:
        super().__init__()
        self._on_complaint = on_complaint

    def add(self, what: str) -> None:
        """The first ones only: what follows from them would hide them."""
        if len(self) < _MOST:
            self.append(what)
            self._on_complaint(what)

    def add_all(self, found: Iterable[str]) -> None:
        for what in found:
            self.add(what)

    def check(self) -> None:
        """Raises AssertionError if there are any."""
        assert not self, f"{len(self)} complaints"
