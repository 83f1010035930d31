"""Many cases in one test, where an item of pytest for each would prove nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def naming(case: str) -> Iterator[None]:
    """A failure inside has the case as a note, which pytest prints below it."""
    try:
        yield
    except BaseException as failure:  # pytest.raises fails with one that is no Exception
        failure.add_note(case)
        raise
