"""The plan of a replay, as a value: made from flags, checked, and printed, all without Spark."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final

import attrs

from kwire.pipeline.bounds import Bound, Edge, Moment, Offset, Offsets
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.source import check_group, check_source_options, shown_options, source_options
from kwire.pipeline.warehouse import Warehouse

STATE_TOPIC: Final = "kwire-replays"
TAG_PREFIX: Final = "kwire-replay-"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


@attrs.frozen
class TableSource:
    """A table that a job of the pipeline made."""

    warehouse: Warehouse
    table: str

    def __str__(self) -> str:
        return f"table {self.table}"


@attrs.frozen
class TopicSource:
    """A topic of a cluster. `options` are the user's options for Spark's kafka source."""

    bootstrap: str
    topic: str
    options: Mapping[str, str] = attrs.field(factory=dict)

    def spark_options(self) -> dict[str, str]:
        return source_options(self.bootstrap, self.topic, "read_committed", self.options)

    def __str__(self) -> str:
        return f"topic {self.topic}"


@attrs.frozen
class Range:
    """The bounds of the range. `first_text` and `until_text` are the same bounds as the user wrote them."""

    first: Bound
    until: Bound
    first_text: str
    until_text: str


@attrs.frozen(kw_only=True)
class ReplayPlan:
    """The plan of a replay. `bootstrap` is the target's cluster. `rate_per_s` is in records, of all tasks together."""

    source: TableSource | TopicSource
    range: Range
    where: str | None
    bootstrap: str
    to_topic: str
    given_name: str | None = None
    again: bool = False
    skip_lost: bool = False
    rate_per_s: float | None = None
    state_topic: str = STATE_TOPIC

    @property
    def command(self) -> dict[str, str | None]:
        """The flags that identify a replay, by name. Addresses are not among them, so they may change."""
        match self.source:
            case TableSource(warehouse, table):
                of = {"table": table, "--warehouse": str(warehouse)}
            case TopicSource(_, topic):
                of = {"topic": topic}
        return {
            **of,
            "--from": self.range.first_text,
            "--until": self.range.until_text,
            "--where": self.where,
            "--to-topic": self.to_topic,
        }

    @property
    def name(self) -> str:
        """The given name, or one that is derived from `command`, so that the same command has the same name."""
        if self.given_name is not None:
            return self.given_name
        digest = hashlib.sha256(json.dumps(self.command, sort_keys=True).encode()).hexdigest()
        source = self.source.table if isinstance(self.source, TableSource) else self.source.topic
        return f"{source[:80]}-to-{self.to_topic[:80]}-{digest[:8]}"

    @property
    def tag(self) -> str:
        """The tag of the snapshot that is replayed."""
        return f"{TAG_PREFIX}{self.name}"

    def check(self) -> None:
        """Raises PipelineError for options that make no sense."""
        if not _NAME.fullmatch(self.name):
            raise PipelineError(f"--name {self.name!r} is no name: letters, digits, ., _ and - make one, 200 at most")
        if self.to_topic == self.state_topic:
            raise PipelineError(f"--to-topic {self.to_topic} is where replays keep their positions: name another topic")
        if self.rate_per_s is not None and self.rate_per_s <= 0:
            raise PipelineError("--rate is a number of records a second, more than 0")
        if self.range.first == Edge(latest=True) or self.range.until == Edge(latest=False):
            raise PipelineError(
                f"the range is empty: it begins at {self.range.first_text} and ends at {self.range.until_text}"
            )
        match self.source:
            case TopicSource():
                check_source_options(self.source.options)
                check_group(self.source.options, "a replay keeps its place under its --name")
            case TableSource():
                table_condition(self.range)

    def describe(self) -> dict[str, object]:
        """Returns the plan for --dry-run, under stable names."""
        match self.source:
            case TableSource(warehouse, table):
                of: dict[str, object] = {"table": table, "warehouse": str(warehouse)}
            case TopicSource(bootstrap, topic):
                of = {
                    "topic": topic,
                    "bootstrap": bootstrap,
                    "source_options": shown_options(self.source.spark_options()),
                }
        return {
            "name": self.name,
            **of,
            "from": self.range.first_text,
            "until": self.range.until_text,
            "where": self.where,
            "to_topic": self.to_topic,
            "target": self.bootstrap,
            "rate_per_s": self.rate_per_s,
            "kept_topic": self.state_topic,
        }


def table_condition(range_: Range) -> str:
    """Returns the range as SQL over the column `kafka`. A time is compared with the record's timestamp.

    Raises PipelineError for a range that no row can be in.
    """
    first, until = range_.first, range_.until
    if isinstance(first, Offsets) and isinstance(until, Offsets) and not set(first.offsets) & set(until.offsets):
        raise PipelineError("the range is empty: --from and --until name no partition in common")
    found = [text for bound, how in ((first, ">="), (until, "<")) if (text := _compared(bound, how)) is not None]
    return " AND ".join(found) or "TRUE"


def _compared(bound: Bound, how: str) -> str | None:
    match bound:
        case Edge():
            return None
        case Offset(offset):
            return f"kafka.`offset` {how} {offset}"
        case Moment(ms):
            return f"kafka.`timestamp` {how} timestamp_millis({ms})"
        case Offsets(offsets):
            each = (f"kafka.`partition` = {it} AND kafka.`offset` {how} {at}" for it, at in sorted(offsets.items()))
            return f"({' OR '.join(each)})"
