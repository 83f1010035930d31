"""Two sizes of one test: `make test` runs it small, `make soak` in full.

@small_and_full
def test_it_holds(*, full: bool) -> None: ...
"""

from __future__ import annotations

import pytest

small_and_full = pytest.mark.parametrize(
    "full", [pytest.param(False, id="small"), pytest.param(True, id="full", marks=pytest.mark.soak)]
)
