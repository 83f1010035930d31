"""The offset at which a group begins in a partition."""

from __future__ import annotations

import pytest

from kwire.share.leader.offset_reset import duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by_duration:P1D", 86_400_000),
        ("by_duration:PT2H", 7_200_000),
        ("by_duration:PT3M", 180_000),
        ("by_duration:PT1.5S", 1500),
        ("by_duration:P1DT1H1M1S", 90_061_000),
        ("latest", None),
        ("earliest", None),
    ],
)
def test_durations_are_read_in_milliseconds(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected
