"""`kwire pipeline`: topics become tables, or are kept in another cluster, on Spark.

The work is in kwire.pipeline; here it is asked for and shown. The commands import what they need when they run: Spark
and Iceberg are no part of the broker.
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
    told_in_a_line,
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
A file holds the same options under the same names, as YAML or TOML:
  topics: [orders]
  to: warehouse
  value: json
  conf: {spark.sql.shuffle.partitions: 4}

\b
Exit code: 0 the job ended, or was stopped; 2 it cannot go on, and one line says why.
"""


@click.group()
def pipeline() -> None:
    """Turn topics into Iceberg tables, exactly once, on Spark; or mirror them to another cluster.

    Any Kafka cluster will do, kwire or not. Needs pip install 'kwire[pipeline]' and Java 17 to 23.
    """


@pipeline.command(epilog=TABLE_EPILOG, short_help="Keep tables of topics, exactly once.")
@click.argument("topics", metavar="TOPIC...", nargs=-1)
@BROKER
@WAREHOUSE
@TABLE
@click.option(
    "--value", type=click.Choice(_VALUE_FORMATS), default="bytes", show_default=True, help="How values are decoded."
)
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of the values: DDL or Spark's JSON for json, .avsc for avro, a folder of ID.avsc for confluent-avro. "
    "Without it, JSON is inferred from a sample once.",
)
@click.option(
    "--mode",
    type=click.Choice(["append", "upsert"]),
    default="append",
    show_default=True,
    help="A row for each record; or for each key, with tombstones as deletes.",
)
@click.option(
    "--partition-by", multiple=True, metavar="EXPR", help="days(kafka.timestamp), value.country, ... May be repeated."
)
@click.option("--evolve", is_flag=True, help="Add fields that JSON values bring to the table.")
@READING
@click.option(
    "--dead-letter-topic", metavar="TOPIC", help="Send records that cannot be decoded there, too: at least once."
)
@ONCE
@interval(10.0, "How often to commit.")
@MAX_RECORDS
@SOURCE_OPTION
@RUNNING
def table(**options: Any) -> None:
    """Keep an Iceberg table of each TOPIC.

    Every record is in its table exactly once, whatever is killed: the offsets are in the table's own snapshots. What
    cannot be decoded goes to TABLE__errors, with the reason. The tables are kwire.TABLE in the catalog.
    """
    with told_in_a_line():
        from kwire.cli.pipeline.table import run_table

        run_table(Running.taken_from(options), **options)


INDEX_EPILOG = """\b
Examples:
  kwire pipeline index logs --to warehouse --fields user_id,log_id
  kwire pipeline index orders --to warehouse --fields customer.id:BIGINT,total:DOUBLE --once
  kwire query logs --to warehouse --where "user_id = 42" --since 1d

\b
Exit code: 0 the job ended, or was stopped; 2 it cannot go on, and one line says why.
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
    help="What of the JSON values is indexed: user_id, customer.id, total:DOUBLE. Types: BIGINT, DOUBLE, STRING, "
    "BOOLEAN; found out from a sample where they are not given.",
)
@INDEX_TABLE
@click.option(
    "--buckets",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    metavar="N",
    help="So many parts, by one of the fields, each of its own files.",
)
@READING
@ONCE
@interval(60.0, "How often to commit. Queries read what came since from the brokers.")
@MAX_RECORDS
@SOURCE_OPTION
@RUNNING
def index(**options: Any) -> None:
    """Keep an index of TOPIC by fields of its JSON values.

    Every record is in it exactly once, as with kwire pipeline table. What is no JSON object, or has a field of another
    type, goes to TOPIC__index__errors, with the reason. kwire pipeline maintain merges its files, sorted.
    """
    with told_in_a_line():
        from kwire.cli.pipeline.index import run_index

        run_index(Running.taken_from(options), **options)


VERIFY_EPILOG = """\b
Examples:
  kwire pipeline verify orders --to warehouse
  kwire pipeline verify orders --to warehouse --json | jq '.partitions[] | select(.missing > 0)'

\b
Exit code: 0 sound, 1 something is missing, doubled or different, 2 it could not be compared.
"""


@pipeline.command(epilog=VERIFY_EPILOG, short_help="Compare a table with its topic, record by record.")
@EXISTING_TABLE
@EXISTING_TABLE_WITH
def verify(**options: Any) -> None:
    """Check that a table has every record of TOPIC once, as it was.

    Everything from the topic's first offset to the table's own position is compared, the errors table included: counts
    and hashes by partition, and where these differ, each record. What comes behind is told as lag.
    """
    with told_in_a_line():
        from kwire.cli.pipeline.existing import Asked
        from kwire.cli.pipeline.verify import run_verify

        sys.exit(0 if run_verify(Asked.taken_from(options), **options) else 1)


MAINTAIN_EPILOG = """\b
Examples:
  kwire pipeline maintain orders --to warehouse
  kwire pipeline maintain --to warehouse --keep-snapshots 2 --target-file-size 256

\b
Exit code: 0 done, 2 something could not be done.
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
    help="Smaller files are merged up to this.",
)
@click.option(
    "--keep-snapshots",
    "keep_snapshots_days",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="DAYS",
    help="How far back readers may look.",
)
@click.option(
    "--orphans-older-than",
    "orphans_days",
    type=click.FloatRange(min=1),
    default=3.0,
    show_default=True,
    metavar="DAYS",
    help="Remove files of no snapshot that are older.",
)
@SPARK
@FILE
@JSON
def maintain(**options: Any) -> None:
    """Keep tables quick to read: of each TOPIC, or all of the warehouse.

    Merges small files and folds in deletes, expires old snapshots, and removes what killed jobs left. Readers and jobs
    go on meanwhile; the table's offsets stay.
    """
    with told_in_a_line():
        from kwire.cli.pipeline.maintain import run_maintain

        run_maintain(**options)


BACKFILL_EPILOG = """\b
Examples:
  kwire pipeline backfill orders --to warehouse --from 2026-11-20 --until 2026-11-21
  kwire pipeline backfill orders --to warehouse --from 0:4711,2:100 --until latest

\b
Exit code: 0 done, 2 it could not be done.
"""


@pipeline.command(epilog=BACKFILL_EPILOG, short_help="Take a range of a topic once more, without doubles.")
@EXISTING_TABLE
@FROM
@click.option("--until", default="latest", show_default=True, metavar="BOUND", help="Where it ends, exclusively.")
@EXISTING_TABLE_WITH
def backfill(**options: Any) -> None:
    """Add what a table lacks of a range of TOPIC.

    A BOUND is an offset (4711, or 0:4711,1:100 by partition), a time (2026-11-22T10:00:00 in UTC, or 2h for two hours
    ago), earliest or latest.
    What the table or its errors table has is not added again, so this may be repeated, and run beside the job.
    """
    with told_in_a_line():
        from kwire.cli.pipeline.backfill import run_backfill
        from kwire.cli.pipeline.existing import Asked

        run_backfill(Asked.taken_from(options), **options)


REDO_EPILOG = """\b
Examples:
  kwire pipeline redo orders --to warehouse
  kwire pipeline redo orders --to warehouse --schema better.ddl

\b
Exit code: 0 done, 2 it could not be done.
"""


@pipeline.command(epilog=REDO_EPILOG, short_help="Decode the errors again, by a better schema.")
@EXISTING_TABLE
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="One with more fields; without it, the one that the table has by now.",
)
@EXISTING_TABLE_WITH
def redo(**options: Any) -> None:
    """Take the errors of TOPIC's table once more.

    What can be decoded now becomes rows and leaves TABLE__errors; the rest stays. May run beside the job.
    """
    with told_in_a_line():
        from kwire.cli.pipeline.backfill import run_redo
        from kwire.cli.pipeline.existing import Asked

        run_redo(Asked.taken_from(options), **options)


MIRROR_EPILOG = """\b
Examples:
  kwire pipeline mirror --from one:9092 --to two:9092 orders clicks
  kwire pipeline mirror --from one:9092 --to two:9092 orders --exactly-once --rename one.{topic}
  kwire pipeline mirror --from one:9092 --to two:9092 orders --dry-run --json

\b
Exit code: 0 the job ended, or was stopped; 2 it cannot go on, and one line says why.
"""


@pipeline.command(epilog=MIRROR_EPILOG, short_help="Keep topics in another cluster, with the offsets of groups.")
@click.argument("topics", metavar="TOPIC...", nargs=-1)
@click.option("--from", "source", required=True, metavar="HOST:PORT", help="A broker of the cluster to mirror.")
@click.option("--to", "target", required=True, metavar="HOST:PORT", help="A broker of the cluster to write to.")
@click.option("--exactly-once", is_flag=True, help="Write in transactions that hold the position, too: no doubles.")
@click.option(
    "--rename",
    default="{topic}",
    show_default=True,
    metavar="TEMPLATE",
    help="The topics' names at --to, such as one.{topic}.",
)
@click.option(
    "--name", metavar="NAME", help="The mirror's; it keeps its place under it.  [default: of the clusters' ids]"
)
@begin("Where a topic that was never mirrored begins.")
@ON_GAP
@click.option(
    "--groups", default=".*", show_default=True, metavar="PATTERN", help="The groups whose offsets are translated."
)
@click.option("--no-groups", is_flag=True, help="Translate no offsets of groups.")
@click.option(
    "--groups-interval",
    "groups_interval_s",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to translate them.",
)
@click.option("--exclude-config", multiple=True, metavar="NAME", help="Leave a configuration of the topics alone.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="lz4",
    show_default=True,
    help="How batches are compressed at --to, where the topic does not say.",
)
@ONCE
@interval(1.0, "How often to write.")
@click.option(
    "--max-records-per-batch",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="The most that one batch takes from all topics.",
)
@SOURCE_OPTION
@RUNNING
def mirror(**options: Any) -> None:
    """Keep each TOPIC of one cluster in another.

    Partitions, configurations, keys, headers and timestamps are the same there. No record is lost, and with
    --exactly-once none is there twice, whatever is killed. What groups have committed is committed at --to as well, as
    the offset of the same record. Topics that came from --to are refused.
    """
    with told_in_a_line():
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
Exit code: 0 all is replayed, was before, or the replay was stopped; 2 it cannot go on, and one line says why.
"""


@pipeline.command(epilog=REPLAY_EPILOG, short_help="Write a table, or a range of a topic, back into a topic.")
@click.argument("source", metavar="TOPIC|TABLE")
@BROKER
@click.option(
    "--warehouse",
    metavar="WAREHOUSE",
    help="Where TABLE is: a folder, or catalog:NAME, configured by --conf. Without it, a TOPIC of -b is replayed.",
)
@click.option("--to-topic", required=True, metavar="TOPIC", help="Where the records go. It may be the source itself.")
@click.option("--target", metavar="HOST:PORT", help="A broker of the cluster of --to-topic.  [default: that of -b]")
@FROM
@click.option(
    "--until", "--to", default="latest", show_default=True, metavar="BOUND", help="Where it ends, exclusively."
)
@click.option(
    "--where",
    metavar="SQL",
    help="Only what meets this condition of Spark SQL: on value and kafka.partition, .offset, .timestamp, .key, "
    ".headers. The value of a topic's record is bytes.",
)
@click.option(
    "--rate", "rate_per_s", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N records a second."
)
@click.option(
    "--name",
    "given_name",
    metavar="NAME",
    help="Of this replay: a run of the same name goes on with it.  [default: derived from source, range, condition and "
    "target, so that the same command goes on]",
)
@click.option("--again", is_flag=True, help="Start over, whatever was replayed under this name before.")
@click.option("--skip-lost", is_flag=True, help="Go on where retention took records before they were replayed.")
@click.option(
    "--kept-topic",
    default="kwire-replays",
    show_default=True,
    metavar="TOPIC",
    help="Where the target's cluster keeps how far replays are. Made when it is missing.",
)
@SOURCE_OPTION
@RUNNING
def replay(**options: Any) -> None:
    """Write a table, or a range of a topic, into a topic.

    Keys, values, headers and timestamps are as they were, and records of a key stay in their order. Each is there once
    for readers of committed data (read_committed), however often the replay is killed and started again: the first run
    decides what is replayed, and later ones go on. A replay that is done does nothing more.
    A BOUND is an offset (4711, or 0:4711,1:100 by partition), a time (2026-11-22T10:00:00 in UTC, or 2h for two hours
    ago), earliest or latest.
    """
    with told_in_a_line():
        from kwire.cli.pipeline.replay import run_replay

        run_replay(Running.taken_from(options), **options)


STATUS_EPILOG = """\b
Examples:
  kwire pipeline status warehouse
  kwire pipeline status warehouse -b 127.0.0.1:9092 --json | jq 'select(.lag > 1000)'

\b
Exit code: 0, also when brokers do not answer; 2 the warehouse cannot be read.
"""


@pipeline.command(epilog=STATUS_EPILOG, short_help="Show all tables of a warehouse: lag, last commit, errors.")
@click.argument("warehouse")
@click.option("-b", "--bootstrap-server", "bootstrap", metavar="HOST:PORT", help="A broker to ask for the lag.")
@CATALOG_CONF
@JSON
def status(**options: Any) -> None:
    """Show how the tables of WAREHOUSE stand. Starts no Spark."""
    with told_in_a_line():
        from kwire.cli.pipeline.status import run_status

        run_status(**options)
