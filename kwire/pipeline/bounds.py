"""Parses the bounds of a range of a topic, as a user writes them.

earliest, latest       the topic's beginning or end
4711                   an offset, of every partition
0:4711,2:100           offsets of partitions; others are left out
2026-11-22T10:00:00    the first record at or after a time; see moments.py for other ways to write it
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import attrs

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.moments import parse_moment
from kwire.pipeline.topic_state import TopicState

OffsetsAt = Callable[[int], Mapping[int, int]]
"""The first offset of each partition at or after a time in ms; partitions without such a record are left out."""


@attrs.frozen
class Offset:
    """The same offset in every partition."""

    offset: int


@attrs.frozen
class Offsets:
    """Offsets by partition."""

    offsets: Mapping[int, int]


@attrs.frozen
class Moment:
    """A time, `ms` since the epoch."""

    ms: int


@attrs.frozen
class Edge:
    """The topic's beginning or end."""

    latest: bool


Bound = Offset | Offsets | Moment | Edge


def parse_bound(text: str, *, now_ms: int) -> Bound:
    """Parses a bound. A number is an offset, never a time. Raises PipelineError."""
    if text in ("earliest", "latest"):
        return Edge(text == "latest")
    if re.fullmatch(r"\d{1,18}", text):
        return Offset(int(text))
    if re.fullmatch(r"\d+:\d{1,18}(?:,\d+:\d{1,18})*", text):
        pairs = [part.split(":") for part in text.split(",")]
        return Offsets({int(partition): int(offset) for partition, offset in pairs})
    try:
        return Moment(parse_moment(text, now_ms=now_ms))
    except PipelineError:
        raise PipelineError(
            f"{text!r} is neither an offset (4711, or 0:4711,1:100 by partition) nor a time (2026-11-22T10:00:00, or "
            "2h for two hours ago), earliest or latest"
        ) from None


def resolve(bound: Bound, topic: TopicState, offsets_at: OffsetsAt) -> dict[int, int]:
    """The bound as an offset of each partition that it applies to, within the topic's offsets."""
    match bound:
        case Edge(latest):
            found: Mapping[int, int] = topic.ends if latest else topic.starts
        case Offset(offset):
            found = dict.fromkeys(topic.starts, offset)
        case Offsets(offsets):
            unknown = sorted(set(offsets) - set(topic.starts))
            if unknown:
                raise PipelineError(
                    f"topic {topic.topic} has no partition {unknown[0]}, but {len(topic.starts)} from 0"
                )
            found = offsets
        case Moment(ms):
            found = {**topic.ends, **offsets_at(ms)}
    return {number: min(max(at, topic.starts[number]), topic.ends[number]) for number, at in sorted(found.items())}
