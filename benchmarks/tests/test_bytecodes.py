"""The count of bytecodes: there, and the same each time."""

from __future__ import annotations

import pytest

from benchmarks.bytecodes import count, render


@pytest.mark.more
def test_the_same_request_takes_the_same_bytecodes() -> None:
    first, second = count(), count()
    assert [it.request for it in first] == [it.request for it in second]
    for one, other in zip(first, second, strict=True):
        assert one.total > 0
        # Now and then a segment's index gets an entry.
        assert abs(one.total - other.total) < one.total * 0.02
    assert "handle" in render(first, 20)
