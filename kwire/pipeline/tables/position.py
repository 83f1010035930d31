"""A table's position in its topic, where the next job starts. Pure.

A position is kept in the summary of a snapshot, under `kwire.offsets`, as JSON:

    {"version": 1, "cluster_id": "...", "topic": "orders", "topic_id": "...", "offsets": {"0": 4711, "1": 4690}}

An offset is the next one to be read. Topic and cluster are identified by their ids, because a topic that was deleted
and created again starts at 0: it has other records with the same offsets.

Compactions of a table, and other changes by its owner, make snapshots without that key. The newest snapshot with the
key counts. It is tagged, so that it is never expired.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import attrs

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.topic_state import TopicState

PROPERTY: Final = "kwire.offsets"
TAG: Final = "kwire-offsets"
"""The tag of the newest snapshot with offsets."""
VERSION: Final = 1

OnGap = Literal["fail", "record"]


@attrs.frozen
class Holder:
    """The owner of offsets, as named in messages."""

    name: str
    restart_hint: str
    """The advice for a job that cannot continue from them."""
    notes: str
    """The place where lost records are recorded."""


TABLE: Final = Holder("the table", "write to another table: --table NAME", "in the errors table")


@attrs.frozen
class Position:
    """The next offset of each partition."""

    cluster_id: str
    topic: str
    topic_id: str
    offsets: Mapping[int, int]

    def moved(self, offsets: Mapping[int, int]) -> Position:
        """The position with these partitions at new offsets."""
        return attrs.evolve(self, offsets={**self.offsets, **offsets})

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": VERSION,
                "cluster_id": self.cluster_id,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "offsets": {str(partition): self.offsets[partition] for partition in sorted(self.offsets)},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Position:
        """Raises PipelineError for a value that kwire, or this version of it, did not write."""
        try:
            found = json.loads(text)
            version = found["version"]
            if version == VERSION:
                offsets = {int(partition): int(offset) for partition, offset in found["offsets"].items()}
                names = (found["cluster_id"], found["topic"], found["topic_id"])
                if all(isinstance(name, str) for name in names) and all(n >= 0 for n in (*offsets, *offsets.values())):
                    return cls(*names, offsets)
        except (ValueError, TypeError, KeyError, AttributeError):
            version = None
        if isinstance(version, int) and version > VERSION:
            raise PipelineError(
                f"the table's offsets have version {version}; this kwire reads {VERSION}: upgrade kwire"
            )
        raise PipelineError(f"the table's {PROPERTY} cannot be read: {text[:200]!r}")


def newest_position(summaries: Iterable[Mapping[str, str]]) -> Position | None:
    """The position in the first of the summaries that has one. They come newest first."""
    for summary in summaries:
        if PROPERTY in summary:
            return Position.from_json(summary[PROPERTY])
    return None


@attrs.frozen
class Gap:
    """Records of a partition that were deleted before they were read: from `first` to before `until`."""

    partition: int
    first: int
    until: int

    def __str__(self) -> str:
        return f"partition {self.partition} offsets {self.first} to {self.until - 1}"


@attrs.frozen
class Start:
    """The position at which a job starts, and the lost records between the table's position and it."""

    position: Position
    gaps: tuple[Gap, ...] = ()


class LostRange(PipelineError):
    """Retention passed the table's position."""


def start(
    reached: Position | None,
    topic: TopicState,
    *,
    begin_at: Mapping[int, int],
    on_gap: OnGap = "fail",
    holder: Holder = TABLE,
) -> Start:
    """Returns the start of a job that continues with `topic`; without a position, it starts at `begin_at`.

    Raises PipelineError if the position's offsets are not this topic's, and LostRange, which names the lost offsets, if
    records are gone and `on_gap` is "fail".
    """
    if reached is None:
        return Start(Position(topic.cluster_id, topic.topic, topic.topic_id, dict(begin_at)))
    same_topic(reached, topic, holder)
    offsets, gaps = {}, []
    for partition, first in sorted(topic.starts.items()):
        at = reached.offsets.get(partition, first)
        if at > topic.ends[partition]:
            raise PipelineError(
                f"partition {partition} of topic {topic.topic} ends at offset {topic.ends[partition]}, and "
                f"{holder.name} has records up to {at - 1}: the cluster lost its newest records (an unclean election, "
                f"or a restored backup). Offsets will be used again for other records, so {holder.restart_hint}"
            )
        if at < first:
            gaps.append(Gap(partition, at, first))
        offsets[partition] = max(at, first)
    if gaps and on_gap == "fail":
        raise LostRange(
            f"records of topic {topic.topic} were deleted before they were read: {'; '.join(map(str, gaps))}. "
            f"Retention passed {holder.name}'s position. --on-gap record continues behind them, and writes down "
            f"{holder.notes} what is missing"
        )
    return Start(attrs.evolve(reached, offsets=offsets), tuple(gaps))


def same_topic(reached: Position, topic: TopicState, holder: Holder = TABLE) -> None:
    """Raises PipelineError unless the position's offsets are offsets of this topic."""
    if reached.topic != topic.topic:
        raise PipelineError(
            f"{holder.name} holds topic {reached.topic}, not {topic.topic}: each topic has a table of its own "
            "(--table NAME)"
        )
    if reached.cluster_id != topic.cluster_id:
        raise PipelineError(
            f"{holder.name} holds topic {topic.topic} of cluster {reached.cluster_id}, and this is cluster "
            f"{topic.cluster_id}: name the right brokers, or {holder.restart_hint}"
        )
    gone = sorted(set(reached.offsets) - set(topic.starts))
    if (reached.topic_id and topic.topic_id and reached.topic_id != topic.topic_id) or gone:
        raise PipelineError(
            f"topic {topic.topic} was deleted and created again since {holder.name} was written (its id was "
            f"{reached.topic_id or 'not known'}, and is {topic.topic_id or 'not known'}): its offsets count from 0 "
            f"again. For the new topic, {holder.restart_hint}"
        )
