"""A moment as a person writes it."""

from __future__ import annotations

import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.moments import parse_moment

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2023-11-14", 1_699_920_000_000),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14 22:13:20.123456", NOW_MS + 123),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("1700000000000", NOW_MS),
        ("0", 0),
        ("90m", NOW_MS - 90 * 60_000),
        ("2d", NOW_MS - 2 * 86_400_000),
        ("1960-01-01T00:00:00.5Z", -315_619_199_500),
    ],
)
def test_moments(text: str, ms: int) -> None:
    assert parse_moment(text, now_ms=NOW_MS) == ms


def test_what_is_no_moment_is_one_line() -> None:
    for text in ("", "soon", "5x", "-1d", "2023-13-01", "9" * 30, "2023111422131234"):
        with pytest.raises(PipelineError, match="is no moment"):
            parse_moment(text, now_ms=NOW_MS)
