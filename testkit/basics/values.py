"""Values of records for tests."""

from __future__ import annotations


def numbered(count: int, size: int = 1) -> list[bytes]:
    """Returns numbered values of at least `size` bytes each."""
    return [b"%06d" % number + b"." * (size - 6) for number in range(count)]
