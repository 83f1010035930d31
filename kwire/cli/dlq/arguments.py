"""Converts the options that select letters."""

from __future__ import annotations

from collections.abc import Collection

import click

from kwire.admin.dead_letters.letters import Selection
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.moments import parse_moment
from kwire.runtime.clock import SystemClock


def choose_letters(
    *,
    partition: int | None,
    offsets: Collection[int],
    groups: Collection[str],
    origin_topics: Collection[str],
    origin_partition: int | None,
    origin_offset: int | None,
    reason: str | None,
    since: str | None,
    until: str | None,
) -> Selection:
    """Returns the selection that the options describe. Raises UsageError and BadParameter."""
    if offsets and partition is None:
        raise click.UsageError("--offset is one of a partition: name it with --partition")
    return Selection(
        partition=partition,
        offsets=frozenset(offsets),
        groups=frozenset(groups),
        origin_topics=frozenset(origin_topics),
        origin_partition=origin_partition,
        origin_offset=origin_offset,
        reason=reason,
        since_ms=_moment_ms("--since", since),
        until_ms=_moment_ms("--until", until),
    )


def _moment_ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_moment(text, now_ms=SystemClock().now_ms())
    except PipelineError as error:
        raise click.BadParameter(f"{option} {error}") from None
