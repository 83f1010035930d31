"""Excludes long-lived objects from garbage collection.

CPython's collector stops the event loop and scans every container object that is not frozen: about 100 ms for a
thousand partitions. kwire's own objects do not need it, because objects that refer to each other drop their references
when they end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """Excludes objects created inside from garbage collection, because they are long-lived.

    With a million offsets the collector would scan all of them again and again, for about 500 ms each time. Other
    garbage that exists at the end is never collected either, so use this only for large data.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
