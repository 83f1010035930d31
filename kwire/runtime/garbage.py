"""Keeps the garbage collector away from objects that stay.

CPython's collector stops the event loop and scans every container object that it does not know to be permanent: about
100 ms for a thousand partitions. kwire's own objects do not need it, because those that refer to each other let go when
they end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """Objects created inside are long-lived: the garbage collector need not scan them, now or later.

    With a million offsets it would scan all of them again and again, for about 500 ms each time. Other garbage that
    exists at the end is not collected any more either, so use this for what is large.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
