"""A mirror's state, in its compacted topic at the target: `kwire-mirror-NAME`, with one partition.

Keys and values are JSON. Topics and partitions in keys are the source's; a partition has the same number at the target.

| key | value |
|---|---|
| `{"position": ["orders", 0]}` | how far the partition is mirrored, see below |
| `{"run": ["orders", 0, 4711]}` | `{"target": 4690, "count": 40}`: 40 records, at the source from offset 4711 on |
| `{"gap": ["orders", 0, 100]}` | `{"until": 150}`: the source deleted offsets 100 to 149 before they were mirrored |
| `{"configs": ["orders"]}` | `{"retention.ms": "1000"}`: what was set at the target, as it was set at the source |

A position is written in the transaction of the records before it, and so are the runs:

    {"version": 1, "next": 4751, "next_target": 4730, "target_topic": "orders", "target_begin": 0,
     "run": [4711, 4690, 40], "cluster_id": "...", "topic_id": "...", "target_topic_id": "...",
     "origins": [["...", "orders"]], "run_id": "..."}

`next` is the source's next offset, and `next_target` is where a consumer at that offset continues; it follows from
`run`, the newest run. `target_begin` is the target's end when the mirror began. `origins.py` describes `origins`.
`run_id` is the run of `kwire pipeline mirror` that wrote the position.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from kwire.client.cluster import TopicPartition
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.offsets import Run
from kwire.pipeline.mirror.origins import Origin
from kwire.pipeline.tables.position import Gap

TOPIC_PREFIX: Final = "kwire-mirror-"
VERSION: Final = 1


@attrs.frozen(kw_only=True)
class Position:
    """The mirror's position in one partition."""

    at: TopicPartition
    next: int
    target_topic: str
    target_begin: int
    run: Run | None = None
    cluster_id: str
    topic_id: str
    target_topic_id: str
    origins: frozenset[Origin]
    run_id: str

    @property
    def key(self) -> bytes:
        return _key("position", *self.at)

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.target_topic, self.at.partition)

    def value(self) -> bytes:
        run = self.run
        return _json(
            {
                "version": VERSION,
                "next": self.next,
                "next_target": self.target_begin if run is None else run.target_end,
                "target_topic": self.target_topic,
                "target_begin": self.target_begin,
                "run": None if run is None else [run.source, run.target, run.count],
                "cluster_id": self.cluster_id,
                "topic_id": self.topic_id,
                "target_topic_id": self.target_topic_id,
                "origins": sorted(self.origins),
                "run_id": self.run_id,
            }
        )

    @classmethod
    def read(cls, at: TopicPartition, value: bytes) -> Position:
        """Raises PipelineError for a value that kwire, or this version of it, did not write."""
        found = _read(value)
        if found.get("version") != VERSION:
            raise PipelineError(
                f"the mirror's position of {at} has version {found.get('version')}; this kwire reads {VERSION}: "
                "upgrade kwire"
            )
        try:
            return cls(
                at=at,
                next=found["next"],
                target_topic=found["target_topic"],
                target_begin=found["target_begin"],
                run=None if found["run"] is None else Run(*found["run"]),
                cluster_id=found["cluster_id"],
                topic_id=found["topic_id"],
                target_topic_id=found["target_topic_id"],
                origins=frozenset(Origin(*it) for it in found["origins"]),
                run_id=found["run_id"],
            )
        except (KeyError, TypeError):
            raise PipelineError(f"the mirror's position of {at} cannot be read: {value[:200]!r}") from None


@attrs.frozen
class State:
    """The whole state at one moment. Runs are in the order of their offsets."""

    positions: Mapping[TopicPartition, Position] = attrs.field(factory=dict)
    runs: Mapping[TopicPartition, list[Run]] = attrs.field(factory=dict)
    configs: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    gaps: Mapping[TopicPartition, list[Gap]] = attrs.field(factory=dict)

    @classmethod
    def read(cls, values: Mapping[bytes, bytes]) -> State:
        """Raises PipelineError."""
        positions: dict[TopicPartition, Position] = {}
        runs: dict[TopicPartition, list[Run]] = defaultdict(list)
        configs: dict[str, Mapping[str, str]] = {}
        gaps: dict[TopicPartition, list[Gap]] = defaultdict(list)
        for key, value in values.items():
            try:
                ((kind, names),) = _read(key).items()
                match kind, names:
                    case "position", [topic, partition]:
                        at = TopicPartition(topic, partition)
                        positions[at] = Position.read(at, value)
                    case "run", [topic, partition, source]:
                        run = _read(value)
                        runs[TopicPartition(topic, partition)].append(Run(source, run["target"], run["count"]))
                    case "gap", [topic, partition, first]:
                        gap = Gap(partition, first, _read(value)["until"])
                        gaps[TopicPartition(topic, partition)].append(gap)
                    case "configs", [topic]:
                        configs[topic] = _read(value)
            except (KeyError, TypeError, ValueError):
                raise PipelineError(f"the mirror's topic has something else in it: {key[:200]!r}") from None
        for some in runs.values():
            some.sort(key=lambda it: it.source)
        return cls(positions, dict(runs), configs, dict(gaps))


def run_values(at: TopicPartition, written: Iterable[Run], dropped: Iterable[Run] = ()) -> dict[bytes, bytes | None]:
    """The keys and values of runs, and tombstones for the dropped ones."""
    values: dict[bytes, bytes | None] = {_key("run", *at, it.source): None for it in dropped}
    for it in written:
        values[_key("run", *at, it.source)] = _json({"target": it.target, "count": it.count})
    return values


def gap_values(topic: str, gaps: Iterable[Gap]) -> dict[bytes, bytes | None]:
    return {_key("gap", topic, it.partition, it.first): _json({"until": it.until}) for it in gaps}


def configs_values(topic: str, configs: Mapping[str, str]) -> dict[bytes, bytes | None]:
    return {_key("configs", topic): _json(dict(sorted(configs.items())))}


def _key(kind: str, *names: str | int) -> bytes:
    return _json({kind: names})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _read(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError(found)
    return found
