"""Parses a time as a user writes it: a date, a time, or an age."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from kwire.pipeline.errors import PipelineError

_DAY_MS: Final = 24 * 3600 * 1000
_UNITS_MS: Final[Mapping[str, int]] = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS}


def parse_moment(text: str, *, now_ms: int) -> int:
    """Parses 2026-01-31, 2026-01-31T12:00:00 (in UTC, or with +01:00), 90m (ago), or ms. Returns ms since 1970.

    Raises PipelineError.
    """
    stripped = text.strip()
    if age := re.fullmatch(r"(\d{1,9})([smhd])", stripped, re.ASCII):
        return now_ms - int(age[1]) * _UNITS_MS[age[2]]
    if re.fullmatch(r"\d{1,15}", stripped, re.ASCII):
        return int(stripped)
    try:
        if stripped.isdigit():  # ISO 8601 accepts a long number as a time
            raise ValueError
        found = datetime.fromisoformat(stripped)
    except ValueError:
        raise PipelineError(
            f"{text!r} is no moment: it wants 2026-01-31, 2026-01-31T12:00:00Z, 2h (ago), or ms since 1970"
        ) from None
    since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * _DAY_MS + since.seconds * 1000 + since.microseconds // 1000
