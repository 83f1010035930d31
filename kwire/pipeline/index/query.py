"""A query: reads the index up to its position and the brokers from there on, and returns both in order.

Each offset is on exactly one side, because the position is that of the snapshot that is read. So no record is found
twice and none is missed, even if the job commits meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final

import attrs

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.index.found import FoundRecord
from kwire.pipeline.index.lookup import Index, open_index
from kwire.pipeline.index.tail import Tail, reaching, tail_behind
from kwire.pipeline.index.where import TIMESTAMP, And, Compare, Condition, parse_where
from kwire.pipeline.tables.position import Gap
from kwire.pipeline.warehouse import Warehouse

DEFAULT_TAIL_LIMIT: Final = 200_000
"""The number of offsets that Python reads and decodes in a few seconds."""


@attrs.frozen(kw_only=True)
class Query:
    """`since_ms` is inclusive, `until_ms` exclusive. `tail_limit` counts offsets; 0 sends no requests to brokers."""

    topic: str
    bootstrap: str
    warehouse: Warehouse
    table: str
    where: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int = 100
    tail_limit: int = DEFAULT_TAIL_LIMIT

    def condition(self, index: Index, *, now_ms: int) -> Condition | None:
        """Returns the condition that a record has to meet, of `where` and the times. Raises PipelineError."""
        parts: list[Condition] = []
        if self.where is not None:
            parts.append(parse_where(self.where, index.fields, now_ms=now_ms))
        if self.since_ms is not None:
            parts.append(Compare(TIMESTAMP, ">=", self.since_ms))
        if self.until_ms is not None:
            parts.append(Compare(TIMESTAMP, "<", self.until_ms))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else And(tuple(parts))


@attrs.frozen(kw_only=True)
class Freshness:
    """The state of the index at the query. The last three are None if no request was sent to brokers."""

    index: str
    topic: str
    rows: int
    offsets: Mapping[int, int]
    """The next offset to be indexed, by partition."""
    age_s: float
    """The time since the job's last commit."""
    lag: Mapping[int, int] | None
    not_indexed: int | None
    """The number of records in the tail that cannot be indexed."""
    lost: tuple[Gap, ...] | None

    def describe(self) -> dict[str, object]:
        """Returns the values under stable names."""
        return {
            "index": self.index,
            "topic": self.topic,
            "rows": self.rows,
            "offsets": {str(number): offset for number, offset in sorted(self.offsets.items())},
            "age_s": round(self.age_s, 3),
            "lag": None if self.lag is None else {str(number): it for number, it in sorted(self.lag.items())},
            "not_indexed": self.not_indexed,
            "lost": None if self.lost is None else [str(it) for it in self.lost],
        }


@attrs.frozen(kw_only=True)
class Answer:
    """The records by time. `is_cut` is True if there are more."""

    records: list[FoundRecord]
    is_cut: bool
    freshness: Freshness


def execute(query: Query, *, now_ms: int) -> Answer:
    """Raises PipelineError."""
    index = open_index(query.warehouse, query.table)
    if index.topic != query.topic:
        raise PipelineError(f"{index.name} is the index of topic {index.topic}, not of {query.topic}")
    condition = query.condition(index, now_ms=now_ms)
    wanted = query.limit + 1
    with ExitStack() as ended:
        tail: Tail | None = None
        of_tail: list[FoundRecord] = []
        if query.tail_limit:
            cluster = ended.enter_context(reaching(query.bootstrap))
            tail = tail_behind(cluster, index.position, index.isolation)
            if tail.offsets > query.tail_limit:
                raise PipelineError(
                    f"the index {index.name} is {tail.offsets:,} offsets behind topic {index.topic}, and --tail-limit "
                    f"is {query.tail_limit:,}: let kwire pipeline index catch up, raise the limit, or leave the tail "
                    "out with --tail-limit 0"
                )
            found = tail.find(cluster, index.fields, condition)
            of_tail = heapq.nsmallest(wanted, found, key=lambda it: it.order)
        of_index = index.find(condition, wanted)
        records = [*_first(wanted, heapq.merge(of_index, of_tail, key=lambda it: it.order))]
    return Answer(
        records=records[: query.limit],
        is_cut=len(records) > query.limit,
        freshness=_freshness(index, tail, now_ms),
    )


def _first(count: int, records: Iterator[FoundRecord]) -> Iterator[FoundRecord]:
    for _, it in zip(range(count), records, strict=False):
        yield it


def _freshness(index: Index, tail: Tail | None, now_ms: int) -> Freshness:
    return Freshness(
        index=index.name,
        topic=index.topic,
        rows=index.rows(),
        offsets=index.position.offsets,
        age_s=max(0.0, (now_ms - index.committed_ms) / 1000),
        lag=None if tail is None else {number: end - tail.starts[number] for number, end in tail.ends.items()},
        not_indexed=None if tail is None else tail.not_indexed,
        lost=None if tail is None else tail.lost,
    )
