"""Parses topics with partitions, times and durations, as the command lines of Kafka's own tools have them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.moments import parse_moment

_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9})(?:\.(?P<ms>\d{1,3}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def parse_scope(topics: Iterable[str]) -> dict[str, list[int] | None]:
    """Parses topics such as `orders` (None for all partitions) and `orders:0,2`. Raises BadParameter."""
    found: dict[str, list[int] | None] = {}
    for text in topics:
        name, colon, indexes = text.partition(":")
        if not name:
            raise click.BadParameter(f"--topic {text!r} names no topic")
        if not colon:
            found[name] = None
            continue
        numbers = [it.strip() for it in indexes.split(",")]
        if not all(it.isascii() and it.isdecimal() and len(it) <= 9 for it in numbers):
            raise click.BadParameter(f"--topic {text!r} is not TOPIC or TOPIC:PARTITIONS, such as orders:0,2")
        known = found.setdefault(name, [])
        if known is not None:
            found[name] = sorted({*known, *map(int, numbers)})
    return found


def parse_datetime_ms(text: str, *, now_ms: int) -> int:
    """Returns milliseconds since the epoch. Raises BadParameter."""
    try:
        return parse_moment(text, now_ms=now_ms)
    except PipelineError as error:
        raise click.BadParameter(f"--to-datetime {error}") from None


def parse_duration_ms(text: str) -> int:
    """Parses an ISO 8601 duration of days and less, as Kafka's tools do, or 90m, 2h, 7d. Raises BadParameter."""
    stripped = text.strip()
    found = _DURATION.fullmatch(stripped)
    if found is not None and any(found.groups()):
        days, hours, minutes, seconds = (int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
        whole_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
        return whole_ms + int((found["ms"] or "0").ljust(3, "0"))
    if re.fullmatch(r"\d{1,9}[smhd]", stripped, re.ASCII):
        return -parse_moment(stripped, now_ms=0)
    raise click.BadParameter(f"--by-duration {text!r} is no duration, such as PT2H, P1DT12H, 90m or 7d")
