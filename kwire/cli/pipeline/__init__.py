"""`kwire pipeline`: jobs on Spark that turn topics into tables, or mirror them to another cluster.

kwire.pipeline does the work; these modules parse options and show results. The commands import what they need when they
run, because Spark and Iceberg are not part of the broker.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from kwire.cli.pipeline.options import (
    BROKER,
    CATALOG_CONF,
    EXISTING_TABLE,
    EXISTING_TABLE_WITH,
    FILE,
    FROM,
    INDEX_TABLE,
    JSON,
    MAX_RECORDS,
    ON_GAP,
    ONCE,
    READING,
    RUNNING,
    SOURCE_OPTION,
    SPARK,
    TABLE,
    WAREHOUSE,
    Running,
    begin,
    interval,
    one_line_errors,
)

_VALUE_FORMATS = ("bytes", "json", "avro", "confluent-avro")

TABLE_EPILOG = """\b
Examples:
  kwire pipeline table orders --to warehouse --once
  kwire pipeline table orders clicks --to warehouse --value json
  kwire pipeline table orders --to warehouse --value json --schema orders.ddl --dry-run
  kwire pipeline table accounts --to warehouse --mode upsert --value avro --schema account.avsc
  kwire pipeline table orders --to catalog:prod --conf spark.sql.catalog.prod=org.apache.iceberg.spark.SparkCatalog \\
      --conf spark.sql.catalog.prod.type=rest --conf spark.sql.catalog.prod.uri=http://catalog:8181
  kwire pipeline table --file orders.yaml

\b
A YAML or TOML file holds the same options under the same names:
  topics: [orders]
  to: warehouse
  value: json
  conf: {spark.sql.shuffle.partitions: 4}

\b
Exit code: 0 the job ended or was stopped; 2 it cannot continue, and one line says why.
"""


@click.group()
def pipeline() -> None:
    """Turn topics into Iceberg tables, exactly once, on Spark; or mirror them to another cluster.

    Works with any Kafka cluster. Needs pip install 'kwire[pipeline]' and Java 17 to 23.
    """


@pipeline.command(epilog=TABLE_EPILOG, short_help="Keep tables of topics, exactly once.")
@click.argument("topics", metavar="TOPIC...", nargs=-1)
@BROKER
@WAREHOUSE
@TABLE
@click.option(
    "--value", type=click.Choice(_VALUE_FORMATS), default="bytes", show_default=True, help="How to decode values."
)
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Schema of the values: DDL or Spark's JSON for json, .avsc for avro, a folder of ID.avsc for confluent-avro. "
    "Without it, the schema of JSON is inferred once, from a sample.",
)
@click.option(
    "--mode",
    type=click.Choice(["append", "upsert"]),
    default="append",
    show_default=True,
    help="append: one row per record. upsert: one row per key, and tombstones delete.",
)
@click.option(
    "--partition-by", multiple=True, metavar="EXPR", help="days(kafka.timestamp), value.country, ... Repeatable."
)
@click.option("--evolve", is_flag=True, help="Add new fields of JSON values to the table.")
@READING
@click.option(
    "--dead-letter-topic", metavar="TOPIC", help="Also send undecodable records to this topic, at least once."
)
@ONCE
@interval(10.0, "How often to commit.")
@MAX_RECORDS
@SOURCE_OPTION
@RUNNING
def table(**options: Any) -> None:
    """Keep an Iceberg table of each TOPIC.

    Every record is in its table exactly once, whatever is killed, because the offsets are in the table's snapshots.
    Records that cannot be decoded go to TABLE__errors, with the reason. In the catalog the tables are kwire.TABLE.
    """
    with one_line_errors():
        from kwire.cli.pipeline.table import run_table

        run_table(Running.taken_from(options), **options)


INDEX_EPILOG = """\b
Examples:
  kwire pipeline index logs --to warehouse --fields user_id,log_id
  kwire pipeline index orders --to warehouse --fields customer.id:BIGINT,total:DOUBLE --once
  kwire query logs --to warehouse --where "user_id = 42" --since 1d

\b
Exit code: 0 the job ended or was stopped; 2 it cannot continue, and one line says why.
"""


@pipeline.command(epilog=INDEX_EPILOG, short_help="Keep an index of a topic by fields, for kwire query.")
@click.argument("topic")
@BROKER
@WAREHOUSE
@click.option(
    "--fields",
    multiple=True,
    required=True,
    metavar="FIELD[:TYPE],...",
    help="JSON fields to index: user_id, customer.id, total:DOUBLE. Types: BIGINT, DOUBLE, STRING, BOOLEAN; inferred "
    "from a sample if not given.",
)
@INDEX_TABLE
@click.option(
    "--buckets",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    metavar="N",
    help="Number of parts, by the hash of a field, each with its own files.",
)
@READING
@ONCE
@interval(60.0, "How often to commit. Queries read newer records from the brokers.")
@MAX_RECORDS
@SOURCE_OPTION
@RUNNING
def index(**options: Any) -> None:
    """Keep an index of TOPIC by fields of its JSON values.

    Every record is in it exactly once, as with kwire pipeline table. Values that are not JSON objects, or have a field
    of another type, go to TOPIC__index__errors, with the reason. kwire pipeline maintain merges and sorts its files.
    """
    with one_line_errors():
        from kwire.cli.pipeline.index import run_index

        run_index(Running.taken_from(options), **options)


VERIFY_EPILOG = """\b
Examples:
  kwire pipeline verify orders --to warehouse
  kwire pipeline verify orders --to warehouse --json | jq '.partitions[] | select(.missing > 0)'

\b
Exit code: 0 sound, 1 records are missing, duplicated or different, 2 the comparison failed.
"""


@pipeline.command(epilog=VERIFY_EPILOG, short_help="Compare a table with its topic, record by record.")
@EXISTING_TABLE
@EXISTING_TABLE_WITH
def verify(**options: Any) -> None:
    """Check that a table has every record of TOPIC exactly once and unchanged.

    Compares everything from the topic's first offset to the table's position, including the errors table: counts and
    hashes per partition, and individual records where these differ. Later records are reported as lag.
    """
    with one_line_errors():
        from kwire.cli.pipeline.existing import ExistingTable
        from kwire.cli.pipeline.verify import run_verify

        sys.exit(0 if run_verify(ExistingTable.taken_from(options), **options) else 1)


MAINTAIN_EPILOG = """\b
Examples:
  kwire pipeline maintain orders --to warehouse
  kwire pipeline maintain --to warehouse --keep-snapshots 2 --target-file-size 256

\b
Exit code: 0 done, 2 failed.
"""


@pipeline.command(epilog=MAINTAIN_EPILOG, short_help="Compact small files, expire snapshots.")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@WAREHOUSE
@TABLE
@click.option(
    "--target-file-size",
    "target_file_mib",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    metavar="MIB",
    help="Merge smaller files up to this size.",
)
@click.option(
    "--keep-snapshots",
    "keep_snapshots_days",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="DAYS",
    help="How long to keep old snapshots for readers.",
)
@click.option(
    "--orphans-older-than",
    "orphans_days",
    type=click.FloatRange(min=1),
    default=3.0,
    show_default=True,
    metavar="DAYS",
    help="Remove files that belong to no snapshot and are older than this.",
)
@SPARK
@FILE
@JSON
def maintain(**options: Any) -> None:
    """Keep tables fast to read: those of each TOPIC, or all tables of the warehouse.

    Merges small files, applies deletes, expires old snapshots, and removes files that killed jobs left behind. Readers
    and jobs can run meanwhile. The table's offsets do not change.
    """
    with one_line_errors():
        from kwire.cli.pipeline.maintain import run_maintain

        run_maintain(**options)


BACKFILL_EPILOG = """\b
Examples:
  kwire pipeline backfill orders --to warehouse --from 2026-11-20 --until 2026-11-21
  kwire pipeline backfill orders --to warehouse --from 0:4711,2:100 --until latest

\b
Exit code: 0 done, 2 failed.
"""


@pipeline.command(epilog=BACKFILL_EPILOG, short_help="Add records that a table lacks from a range of a topic.")
@EXISTING_TABLE
@FROM
@click.option("--until", default="latest", show_default=True, metavar="BOUND", help="End of the range, exclusive.")
@EXISTING_TABLE_WITH
def backfill(**options: Any) -> None:
    """Add the records of a range of TOPIC that a table lacks.

    A BOUND is an offset (4711, or 0:4711,1:100 by partition), a time (2026-11-22T10:00:00 in UTC, or 2h for two hours
    ago), earliest or latest.
    Records that the table or its errors table already has are not added again, so this can be repeated, and can run
    beside the job.
    """
    with one_line_errors():
        from kwire.cli.pipeline.backfill import run_backfill
        from kwire.cli.pipeline.existing import ExistingTable

        run_backfill(ExistingTable.taken_from(options), **options)


REDO_EPILOG = """\b
Examples:
  kwire pipeline redo orders --to warehouse
  kwire pipeline redo orders --to warehouse --schema better.ddl

\b
Exit code: 0 done, 2 failed.
"""


@pipeline.command(epilog=REDO_EPILOG, short_help="Decode the errors again, with a better schema.")
@EXISTING_TABLE
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Schema with more fields. [default: the table's current schema]",
)
@EXISTING_TABLE_WITH
def redo(**options: Any) -> None:
    """Decode the errors of TOPIC's table again.

    Records that can be decoded now become rows and leave TABLE__errors; the rest stays. Can run beside the job.
    """
    with one_line_errors():
        from kwire.cli.pipeline.backfill import run_redo
        from kwire.cli.pipeline.existing import ExistingTable

        run_redo(ExistingTable.taken_from(options), **options)


MIRROR_EPILOG = """\b
Examples:
  kwire pipeline mirror --from one:9092 --to two:9092 orders clicks
  kwire pipeline mirror --from one:9092 --to two:9092 orders --exactly-once --rename one.{topic}
  kwire pipeline mirror --from one:9092 --to two:9092 orders --dry-run --json

\b
Exit code: 0 the job ended or was stopped; 2 it cannot continue, and one line says why.
"""


@pipeline.command(epilog=MIRROR_EPILOG, short_help="Mirror topics to another cluster, with group offsets.")
@click.argument("topics", metavar="TOPIC...", nargs=-1)
@click.option("--from", "source", required=True, metavar="HOST:PORT", help="Broker of the source cluster.")
@click.option("--to", "target", required=True, metavar="HOST:PORT", help="Broker of the target cluster.")
@click.option("--exactly-once", is_flag=True, help="Write records and position in one transaction: no duplicates.")
@click.option(
    "--rename",
    default="{topic}",
    show_default=True,
    metavar="TEMPLATE",
    help="Names of the topics in the target cluster, such as one.{topic}.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the mirror; its position is stored under it.  [default: derived from the cluster ids]",
)
@begin("Where to start a topic that was never mirrored.")
@ON_GAP
@click.option(
    "--groups", default=".*", show_default=True, metavar="PATTERN", help="Groups whose offsets are translated."
)
@click.option("--no-groups", is_flag=True, help="Translate no group offsets.")
@click.option(
    "--groups-interval",
    "groups_interval_s",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to translate group offsets.",
)
@click.option("--exclude-config", multiple=True, metavar="NAME", help="Topic configuration not to copy. Repeatable.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="lz4",
    show_default=True,
    help="Compression at --to, unless the topic sets one.",
)
@ONCE
@interval(1.0, "How often to write.")
@click.option(
    "--max-records-per-batch",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Maximum number of records in a batch, over all topics.",
)
@SOURCE_OPTION
@RUNNING
def mirror(**options: Any) -> None:
    """Mirror each TOPIC to another cluster.

    Partitions, configurations, keys, headers and timestamps stay the same. No record is lost, and with --exactly-once
    none is duplicated, whatever is killed. Committed group offsets are committed at --to too, as the offset of the
    same record. Topics that came from --to are refused.
    """
    with one_line_errors():
        from kwire.cli.pipeline.mirror import run_mirror

        run_mirror(Running.taken_from(options), **options)


REPLAY_EPILOG = """\b
Examples:
  kwire pipeline replay orders --to-topic orders-again --from 2026-11-20 --until 2026-11-21
  kwire pipeline replay orders --warehouse warehouse --to-topic orders-de --where "value.country = 'DE'"
  kwire pipeline replay orders__errors --warehouse warehouse --to-topic orders-retry --where "reason LIKE 'not JSON%'"
  kwire pipeline replay orders -b prod:9092 --to-topic orders --target 127.0.0.1:9092 --from 2h --rate 1000
  kwire pipeline replay orders --to-topic orders-again --dry-run

\b
Exit code: 0 the replay is complete or was stopped; 2 it cannot continue, and one line says why.
"""


@pipeline.command(epilog=REPLAY_EPILOG, short_help="Write a table, or a range of a topic, back into a topic.")
@click.argument("source", metavar="TOPIC|TABLE")
@BROKER
@click.option(
    "--warehouse",
    metavar="WAREHOUSE",
    help="Warehouse of TABLE: a folder, or catalog:NAME, configured by --conf. Without it, TOPIC of -b is replayed.",
)
@click.option("--to-topic", required=True, metavar="TOPIC", help="Topic to write to. It may be the source itself.")
@click.option("--target", metavar="HOST:PORT", help="Broker of the cluster of --to-topic.  [default: that of -b]")
@FROM
@click.option(
    "--until", "--to", default="latest", show_default=True, metavar="BOUND", help="End of the range, exclusive."
)
@click.option(
    "--where",
    metavar="SQL",
    help="Replay only records that meet this Spark SQL condition on value and kafka.partition, .offset, .timestamp, "
    ".key, .headers. The value of a topic's record is bytes.",
)
@click.option(
    "--rate",
    "rate_per_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Maximum number of records per second.",
)
@click.option(
    "--name",
    "given_name",
    metavar="NAME",
    help="Name of the replay; a run with the same name continues it.  [default: derived from source, range, condition "
    "and target, so that the same command continues]",
)
@click.option("--again", is_flag=True, help="Start over, even if this replay is complete.")
@click.option("--skip-lost", is_flag=True, help="Continue if retention deleted records before they were replayed.")
@click.option(
    "--kept-topic",
    "state_topic",
    default="kwire-replays",
    show_default=True,
    metavar="TOPIC",
    help="Topic in the target's cluster that stores the progress of replays. Created if missing.",
)
@SOURCE_OPTION
@RUNNING
def replay(**options: Any) -> None:
    """Write a table, or a range of a topic, into a topic.

    Keys, values, headers and timestamps stay the same, and the records of a key stay in order. Consumers with
    isolation.level=read_committed see each record once, however often the replay is killed and restarted. The first run
    decides what is replayed, and later runs continue it. Running a complete replay again does nothing.
    A BOUND is an offset (4711, or 0:4711,1:100 by partition), a time (2026-11-22T10:00:00 in UTC, or 2h for two hours
    ago), earliest or latest.
    """
    with one_line_errors():
        from kwire.cli.pipeline.replay import run_replay

        run_replay(Running.taken_from(options), **options)


STATUS_EPILOG = """\b
Examples:
  kwire pipeline status warehouse
  kwire pipeline status warehouse -b 127.0.0.1:9092 --json | jq 'select(.lag > 1000)'

\b
Exit code: 0, even if brokers do not answer; 2 the warehouse cannot be read.
"""


@pipeline.command(epilog=STATUS_EPILOG, short_help="Show all tables of a warehouse: lag, last commit, errors.")
@click.argument("warehouse")
@click.option("-b", "--bootstrap-server", "bootstrap", metavar="HOST:PORT", help="Broker to get the lag from.")
@CATALOG_CONF
@JSON
def status(**options: Any) -> None:
    """Show the state of the tables of WAREHOUSE. Does not start Spark."""
    with one_line_errors():
        from kwire.cli.pipeline.status import run_status

        run_status(**options)
