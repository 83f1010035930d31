"""The decision of a replay's first run, which each later run of that name follows.

It is JSON in the state topic, under the replay's name:

    {"version": 1, "run": "...", "generation": 1, "state": "running", "command": {...}, "source": {...},
     "target_id": "...", "partitions": 3, "records": 0}

where `source` is {"snapshot_id": 7, "condition": "..."}, or {"cluster_id": "...", "topic_id": "...", "ranges":
{"0": [0, 9]}}, the first offset of each partition and the one after the last.

`run` is the process of the current run. A process that finds another one there was overtaken, and ends. `generation`
is the number of the replay's starts from scratch. The tasks' positions are under NAME/GENERATION/PARTITION, so the
leftovers of an earlier generation cannot move a later one.

`state` goes from "running" to "written" when the target has all records, and to "done" when the table's tag is removed
too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.topic_state import TopicState

VERSION: Final = 1

State = Literal["running", "written", "done"]


@attrs.frozen
class PinnedTable:
    """A table's snapshot, and the condition on its rows, as SQL."""

    snapshot_id: int
    condition: str


@attrs.frozen
class PinnedTopic:
    """A topic. `ranges` has the first offset and the one after the last, by partition."""

    cluster_id: str
    topic_id: str
    ranges: Mapping[int, tuple[int, int]]


@attrs.frozen(kw_only=True)
class Pinned:
    """The decision of the first run. `target_id` and `partitions` are those of the target topic."""

    run: str
    generation: int
    state: State
    command: Mapping[str, str | None]
    source: PinnedTable | PinnedTopic
    target_id: str
    partitions: int
    records: int = 0
    """The number of written records; set when all are written."""

    def to_json(self) -> bytes:
        match self.source:
            case PinnedTable():
                source: dict[str, object] = attrs.asdict(self.source)
            case PinnedTopic(cluster_id, topic_id, ranges):
                by_name = {str(number): list(its) for number, its in sorted(ranges.items())}
                source = {"cluster_id": cluster_id, "topic_id": topic_id, "ranges": by_name}
        fields = {it.name: getattr(self, it.name) for it in attrs.fields(Pinned)}
        return json.dumps({"version": VERSION, **fields, "command": dict(self.command), "source": source}).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Pinned:
        """Raises PipelineError for a value that kwire, or this version of it, did not write."""
        try:
            found: dict[str, Any] = json.loads(value)
            version = found.pop("version")
            if version == VERSION:
                return cls(**{**found, "source": _source(found["source"])})
        except (ValueError, TypeError, KeyError, AttributeError):
            version = None
        if isinstance(version, int) and version > VERSION:
            raise PipelineError(f"the replay was begun by a newer kwire (version {version}): upgrade kwire")
        raise PipelineError(f"what is kept of the replay cannot be read: {value[:200]!r}")

    def check_command(self, name: str, command: Mapping[str, str | None]) -> None:
        """Raises PipelineError unless the replay was begun by that command."""
        for flag in sorted({*self.command, *command}):
            was, now = self.command.get(flag), command.get(flag)
            if was != now:
                raise PipelineError(
                    f"replay {name} was begun with {_option_text(flag, was)}, not {_option_text(flag, now)}: give the "
                    "new one a name of its own (--name)"
                )

    def check_target(self, topic: str, topic_id: str, partitions: int) -> None:
        """Raises PipelineError if the target was replaced by another topic, or has more partitions now."""
        if self.target_id != topic_id:
            raise PipelineError(
                f"topic {topic} was deleted and created again since the replay began: --again writes all of it to the "
                "new one"
            )
        if self.partitions != partitions:
            raise PipelineError(
                f"topic {topic} has {partitions} partitions and had {self.partitions} when the replay began, so keys "
                "would move to others: replay into a new topic (--to-topic)"
            )


def key_of(name: str) -> bytes:
    """Returns the key of the pinned decision in the state topic."""
    return name.encode()


def position_key(name: str, generation: int, partition: int | None) -> bytes:
    """Returns the key of a partition's position in the state topic; without a partition, the prefix of all keys."""
    return f"{name}/{generation}/{'' if partition is None else partition}".encode()


def check_source(pinned: PinnedTopic, topic: TopicState, reached: Mapping[int, int], *, skip_lost: bool) -> None:
    """Raises PipelineError if the topic was replaced, or lacks some of the records to be replayed.

    reached: the offset of each partition before which all is replayed, as far as that is known.
    """
    if pinned.cluster_id != topic.cluster_id:
        raise PipelineError(
            f"the replay was begun with topic {topic.topic} of cluster {pinned.cluster_id}, and this is cluster "
            f"{topic.cluster_id}: name the right brokers, or give the new one a name of its own (--name)"
        )
    if pinned.topic_id != topic.topic_id:
        raise PipelineError(
            f"topic {topic.topic} was deleted and created again since the replay began: its records are others. Replay "
            "them under a name of their own (--name)"
        )
    lost = []
    for number, (first, until) in sorted(pinned.ranges.items()):
        if until > topic.ends[number]:
            raise PipelineError(
                f"partition {number} of topic {topic.topic} ends at offset {topic.ends[number]}, and was to be "
                f"replayed up to {until - 1}: the cluster lost its newest records. Replay what is there under a name "
                "of its own (--name)"
            )
        begin, start = max(first, reached.get(number, first)), topic.starts[number]
        if begin < min(start, until):
            lost.append(f"partition {number} offsets {begin} to {min(start, until) - 1}")
    if lost and not skip_lost:
        raise PipelineError(
            f"records of topic {topic.topic} were deleted, and it is not known that all of them were replayed before: "
            f"{'; '.join(lost)}. --skip-lost continues without them"
        )


def _option_text(flag: str, value: str | None) -> str:
    if flag.startswith("--"):
        return f"no {flag}" if value is None else f"{flag} {value}"
    return f"another source than a {flag}" if value is None else f"{flag} {value}"


def _source(found: dict[str, Any]) -> PinnedTable | PinnedTopic:
    if "snapshot_id" in found:
        return PinnedTable(**found)
    ranges = {int(number): (int(first), int(until)) for number, (first, until) in found["ranges"].items()}
    return PinnedTopic(found["cluster_id"], found["topic_id"], ranges)
