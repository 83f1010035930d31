"""The plan of a table job, as a value: made from flags or a file, checked, and printed, all without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

import attrs

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.source import check_group, check_source_options, shown_options, source_options
from kwire.pipeline.tables.position import OnGap
from kwire.pipeline.tables.values import AvroSchemas, ValueFormat
from kwire.pipeline.warehouse import Warehouse, errors_table_name, table_name

Mode = Literal["append", "upsert", "index"]
Isolation = Literal["read_committed", "read_uncommitted"]
Beginning = Literal["earliest", "latest"]

# Table properties, which a later run, `verify` and `redo` need.
TOPIC_PROPERTY: Final = "kwire.topic"
VALUE_PROPERTY: Final = "kwire.value"
MODE_PROPERTY: Final = "kwire.mode"
ISOLATION_PROPERTY: Final = "kwire.isolation"
AVRO_PROPERTY: Final = "kwire.avro"

_TRANSFORM = re.compile(r"(?:[a-z]+\((?:\d+ *, *)?[A-Za-z_][\w.]*(?: *, *\d+)?\)|[A-Za-z_][\w.]*)")


@attrs.frozen(kw_only=True)
class TablePlan:
    """One topic into one table. Times in seconds."""

    bootstrap: str
    topic: str
    warehouse: Warehouse
    table: str
    value: ValueFormat = "bytes"
    schema: str | None = None
    """The schema of JSON values: DDL, or Spark's JSON. None: the table's own, or inferred from a sample."""
    avro: AvroSchemas | None = None
    mode: Mode = "append"
    partition_by: tuple[str, ...] = ()
    evolve: bool = False
    isolation: Isolation = "read_committed"
    begin: Beginning = "earliest"
    on_gap: OnGap = "fail"
    group: str | None = None
    dead_letter_topic: str | None = None
    once: bool = False
    interval_s: float = 10.0
    max_records_per_commit: int = 5_000_000
    sample_records: int = 10_000
    source_options: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def errors_table(self) -> str:
        return errors_table_name(self.table)

    @property
    def published_group(self) -> str:
        """The consumer group whose offsets show the table's position to tools that report lag."""
        return self.group or f"kwire-pipeline-{self.table}"

    @property
    def table_properties(self) -> dict[str, str]:
        """The properties that the table is created with."""
        return {
            TOPIC_PROPERTY: self.topic,
            VALUE_PROPERTY: self.value,
            MODE_PROPERTY: self.mode,
            ISOLATION_PROPERTY: self.isolation,
            "format-version": "2",
            "write.merge.mode": "merge-on-read",
            "write.delete.mode": "merge-on-read",
            "write.parquet.compression-codec": "zstd",
            # Each commit writes a metadata file; of the old ones a hundred are kept.
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "100",
        }

    def check(self) -> None:
        """Raises PipelineError for options that make no sense."""
        if self.value == "bytes" and (self.schema is not None or self.avro is not None or self.evolve):
            raise PipelineError("--schema and --evolve are for values that are decoded: give --value json or avro")
        if self.value == "json" and self.avro is not None:
            raise PipelineError("an Avro schema is given, and --value is json")
        if self.value in ("avro", "confluent-avro") and self.avro is None:
            raise PipelineError(f"--value {self.value} wants its schema: --schema FILE, or a folder for confluent-avro")
        if self.evolve and self.value != "json":
            raise PipelineError("--evolve is for JSON; an Avro table grows when it is given a schema with more fields")
        for transform in self.partition_by:
            if not _TRANSFORM.fullmatch(transform):
                raise PipelineError(
                    f"--partition-by {transform!r} is neither a field nor a transform of one, such as "
                    "days(kafka.timestamp), value.country or bucket(16, value.user_id)"
                )
        check_source_options(self.source_options)
        check_group(self.source_options, "the job publishes its offsets as one: --group")
        if self.dead_letter_topic == self.topic:
            raise PipelineError(
                f"--dead-letter-topic {self.topic} is the topic that is read: a bad record would come back for ever"
            )

    def check_table(self, properties: Mapping[str, str]) -> None:
        """Raises PipelineError unless the existing table was made by such a plan."""
        if TOPIC_PROPERTY not in properties:
            raise PipelineError(f"table {self.table} was not made by kwire: write to another, --table NAME")
        for key, mine, flag in (
            (TOPIC_PROPERTY, self.topic, "topic"),
            (VALUE_PROPERTY, self.value, "--value"),
            (MODE_PROPERTY, self.mode, "--mode"),
        ):
            if properties.get(key) != mine:
                raise PipelineError(
                    f"table {self.table} was made with {flag} {properties.get(key)}, not {mine}: use the same, or "
                    "write to another table, --table NAME"
                )

    def source(self) -> dict[str, str]:
        """The options of Spark's kafka source, without the offsets."""
        return source_options(self.bootstrap, self.topic, self.isolation, self.source_options)

    def sink(self) -> dict[str, str]:
        """The options of Spark's kafka sink, for dead letters: it logs in as the source does."""
        assert self.dead_letter_topic is not None
        kafka = {name: value for name, value in self.source_options.items() if name.lower().startswith("kafka.")}
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.dead_letter_topic,
            "includeHeaders": "true",
            **kafka,
        }

    def describe(self) -> dict[str, object]:
        """Returns the plan for --dry-run, under stable names."""
        return {
            "topic": self.topic,
            "bootstrap": self.bootstrap,
            "warehouse": str(self.warehouse),
            "table": self.table,
            "errors_table": self.errors_table,
            "value": self.value,
            "schema": self.schema,
            "mode": self.mode,
            "partition_by": list(self.partition_by),
            "evolve": self.evolve,
            "isolation": self.isolation,
            "begin": self.begin,
            "on_gap": self.on_gap,
            "group": self.published_group,
            "dead_letter_topic": self.dead_letter_topic,
            "trigger": "once" if self.once else f"every {self.interval_s:g} s",
            "max_records_per_commit": self.max_records_per_commit,
            "source_options": shown_options(self.source()),
        }


def check_plans(plans: list[TablePlan]) -> None:
    """Checks each plan, and that no two of them conflict. Raises PipelineError."""
    topics = {plan.topic for plan in plans}
    tables: dict[str, str] = {}
    for plan in plans:
        plan.check()
        for table in (plan.table, plan.errors_table):
            if table in tables:
                both = f"topics {tables[table]} and {plan.topic} would both become table {table}"
                same = f"topic {plan.topic} is named twice"
                raise PipelineError(
                    same if tables[table] == plan.topic else f"{both}: give them jobs of their own, with --table NAME"
                )
            tables[table] = plan.topic
        if plan.dead_letter_topic in topics:
            raise PipelineError(f"--dead-letter-topic {plan.dead_letter_topic} is a topic that is read: name another")


def table_of(topic: str, given: str | None) -> str:
    """The name of the table: as given, or the topic's. Raises PipelineError."""
    name = table_name(topic) if given is None else given
    if not name or table_name(name) != name:
        raise PipelineError(f"--table {name!r} is no name for a table: letters, digits and _ make one")
    return name
