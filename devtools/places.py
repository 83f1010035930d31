"""The folders of devtools, all inside the checkout."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / ".cache"


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Holds the lock `name` against other processes (and other threads: each entry opens its own file)."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
