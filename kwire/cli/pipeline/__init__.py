"""`kwire pipeline`: topics become tables, on Spark. The work is in kwire.pipeline; here it is asked for and shown.

The commands import what they need when they run: Spark and Iceberg are no part of the broker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

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


@contextmanager
def _told_in_a_line() -> Iterator[None]:
    """What a user can mend ends the command with one line and exit code 2."""
    from kwire.pipeline.errors import PipelineError
    from kwire.pipeline.session import check_packages

    try:
        check_packages()
        yield
    except PipelineError as error:
        click.echo(f"kwire pipeline: {error}", err=True)
        sys.exit(2)


def _from_file(context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """The file's options become the defaults of the flags."""
    if path is not None:
        with _told_in_a_line():
            from kwire.pipeline.files import read_options

            found = read_options(path)
        known = dict(_names(context.command))
        unknown = sorted(set(found) - set(known))
        if unknown:
            raise click.UsageError(f"{path} has options that {context.info_name} does not know: {', '.join(unknown)}")
        context.default_map = {str(known[name].name): _as_given(name, known[name], it) for name, it in found.items()}
    return path


def _names(command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    """What may stand in a file: the long flags with _ for -, and the name of the argument."""
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            yield str(parameter.name), parameter
        elif parameter.name != "file":
            for flag in parameter.opts:
                if flag.startswith("--"):
                    yield flag.removeprefix("--").replace("-", "_"), parameter


def _as_given(name: str, parameter: click.Parameter, value: object) -> object:
    """A value of a file as the command line would give it. Raises UsageError for one of another shape."""
    several = parameter.nargs == -1 or (isinstance(parameter, click.Option) and parameter.multiple)
    if isinstance(value, Mapping) and parameter.callback is _settings:
        return [f"{key}={_text(it)}" for key, it in value.items()]
    items = value if isinstance(value, list) else [value]
    if any(isinstance(it, (Mapping, list)) for it in items) or not (several or items is not value):
        raise click.UsageError(f"{name} takes {'values' if several else 'one value'}, not {value!r}")
    if several:
        return [_text(it) for it in items]
    return value if isinstance(value, bool) else _text(value)


def _text(value: object) -> str:
    """Booleans as Java writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _settings(_context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE, several times, as a dictionary."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param=parameter)
        found[name.strip()] = value.strip()
    return found


def _options(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def with_them(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return with_them


_BROKER = click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="A broker of the cluster; several with commas.",
)
_WAREHOUSE = click.option(
    "--to",
    "warehouse",
    required=True,
    metavar="WAREHOUSE",
    help="A folder, with its catalog beside the tables; or catalog:NAME, configured by --conf.",
)
_SOURCE_OPTION = click.option(
    "--option",
    "source_options",
    multiple=True,
    callback=_settings,
    metavar="NAME=VALUE",
    help="An option of Spark's kafka source, such as kafka.security.protocol=SSL.",
)
_SPARK = _options(
    click.option("--master", metavar="URL", help="Spark's master, instead of local[*]; or use spark-submit."),
    click.option(
        "--conf", multiple=True, callback=_settings, metavar="NAME=VALUE", help="A setting of Spark's. May be repeated."
    ),
)
_FILE = click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_from_file,
    help="Take options from a YAML or TOML file; flags go before it.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line, under names that stay.")

_READING = _options(
    click.option(
        "--isolation",
        type=click.Choice(["read_committed", "read_uncommitted"]),
        default="read_committed",
        show_default=True,
    ),
    click.option(
        "--begin",
        type=click.Choice(["earliest", "latest"]),
        default="earliest",
        show_default=True,
        help="Where a new table begins.",
    ),
    click.option(
        "--on-gap",
        type=click.Choice(["fail", "record"]),
        default="fail",
        show_default=True,
        help="What to do when records were deleted before they were read.",
    ),
    click.option(
        "--group",
        metavar="GROUP",
        help="The consumer group that shows lag tools how far the table is.  [default: kwire-pipeline-TABLE]",
    ),
)
_WORKING = _options(
    click.option(
        "--max-records-per-commit",
        type=click.IntRange(min=1),
        default=5_000_000,
        show_default=True,
        metavar="N",
        help="The most that one commit takes from a topic.",
    ),
    _SOURCE_OPTION,
    click.option(
        "--give-up-after",
        "give_up_after_s",
        type=click.FloatRange(min=0),
        default=300.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for brokers that went away.",
    ),
    click.option(
        "--metrics-port", type=click.IntRange(0, 65_535), metavar="PORT", help="Serve Prometheus metrics on 127.0.0.1."
    ),
)
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Check the plan, print it and where it would start, and do nothing."
)


@click.group()
def pipeline() -> None:
    """Turn topics into Iceberg tables, exactly once, on Spark.

    Any Kafka cluster will do, kwire or not. Needs pip install 'kwire[pipeline]' and Java 17 to 23.
    """


@pipeline.command(epilog=TABLE_EPILOG, short_help="Keep tables of topics, exactly once.")
@click.argument("topics", metavar="TOPIC...", nargs=-1)
@_BROKER
@_WAREHOUSE
@click.option("--table", "table_name", metavar="NAME", help="The table's name, instead of the topic's.")
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
@_READING
@click.option(
    "--dead-letter-topic", metavar="TOPIC", help="Send records that cannot be decoded there, too: at least once."
)
@click.option("--once", is_flag=True, help="Take what is there, then end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0, max=86_400),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to commit.",
)
@_WORKING
@_SPARK
@_FILE
@_JSON
@_DRY_RUN
def table(**options: Any) -> None:
    """Keep an Iceberg table of each TOPIC.

    Every record is in its table exactly once, whatever is killed: the offsets are in the table's own snapshots. What
    cannot be decoded goes to TABLE__errors, with the reason. The tables are kwire.TABLE in the catalog.
    """
    with _told_in_a_line():
        from kwire.cli.pipeline.table import run_table

        run_table(**options)


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
@_BROKER
@_WAREHOUSE
@click.option(
    "--fields",
    multiple=True,
    required=True,
    metavar="FIELD[:TYPE],...",
    help="What of the JSON values is indexed: user_id, customer.id, total:DOUBLE. Types: BIGINT, DOUBLE, STRING, "
    "BOOLEAN; found out from a sample where they are not given.",
)
@click.option("--table", "table_name", metavar="NAME", help="The index's table, instead of TOPIC__index.")
@click.option(
    "--buckets",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    metavar="N",
    help="So many parts, by one of the fields, each of its own files.",
)
@_READING
@click.option("--once", is_flag=True, help="Take what is there, then end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0, max=86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to commit. Queries read what came since from the brokers.",
)
@_WORKING
@_SPARK
@_FILE
@_JSON
@_DRY_RUN
def index(**options: Any) -> None:
    """Keep an index of TOPIC by fields of its JSON values.

    Every record is in it exactly once, as with kwire pipeline table. What is no JSON object, or has a field of another
    type, goes to TOPIC__index__errors, with the reason. kwire pipeline maintain merges its files, sorted.
    """
    with _told_in_a_line():
        from kwire.cli.pipeline.index import run_index

        run_index(**options)


VERIFY_EPILOG = """\b
Examples:
  kwire pipeline verify orders --to warehouse
  kwire pipeline verify orders --to warehouse --json | jq '.partitions[] | select(.missing > 0)'

\b
Exit code: 0 sound, 1 something is missing, doubled or different, 2 it could not be compared.
"""


@pipeline.command(epilog=VERIFY_EPILOG, short_help="Compare a table with its topic, record by record.")
@click.argument("topic")
@_BROKER
@_WAREHOUSE
@click.option("--table", "table_name", metavar="NAME", help="The table's name, instead of the topic's.")
@_SOURCE_OPTION
@_SPARK
@_FILE
@_JSON
def verify(**options: Any) -> None:
    """Check that a table has every record of TOPIC once, as it was.

    Everything from the topic's first offset to the table's own position is compared, the errors table included: counts
    and hashes by partition, and where these differ, each record. What comes behind is told as lag.
    """
    with _told_in_a_line():
        from kwire.cli.pipeline.verify import run_verify

        sys.exit(0 if run_verify(**options) else 1)


MAINTAIN_EPILOG = """\b
Examples:
  kwire pipeline maintain orders --to warehouse
  kwire pipeline maintain --to warehouse --keep-snapshots 2 --target-file-size 256

\b
Exit code: 0 done, 2 something could not be done.
"""


@pipeline.command(epilog=MAINTAIN_EPILOG, short_help="Compact small files, expire snapshots.")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@_WAREHOUSE
@click.option("--table", "table_name", metavar="NAME", help="The table's name, instead of the topic's.")
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
@_SPARK
@_FILE
@_JSON
def maintain(**options: Any) -> None:
    """Keep tables quick to read: of each TOPIC, or all of the warehouse.

    Merges small files and folds in deletes, expires old snapshots, and removes what killed jobs left. Readers and jobs
    go on meanwhile; the table's offsets stay.
    """
    with _told_in_a_line():
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
@click.argument("topic")
@_BROKER
@_WAREHOUSE
@click.option("--table", "table_name", metavar="NAME", help="The table's name, instead of the topic's.")
@click.option("--from", "first", default="earliest", show_default=True, metavar="BOUND", help="Where the range begins.")
@click.option("--until", default="latest", show_default=True, metavar="BOUND", help="Where it ends, exclusively.")
@_SOURCE_OPTION
@_SPARK
@_FILE
@_JSON
def backfill(**options: Any) -> None:
    """Add what a table lacks of a range of TOPIC.

    A BOUND is an offset (4711, or 0:4711,1:100 by partition), a time (2026-11-22T10:00:00, UTC), earliest or latest.
    What the table or its errors table has is not added again, so this may be repeated, and run beside the job.
    """
    with _told_in_a_line():
        from kwire.cli.pipeline.backfill import run_backfill

        run_backfill(**options)


REDO_EPILOG = """\b
Examples:
  kwire pipeline redo orders --to warehouse
  kwire pipeline redo orders --to warehouse --schema better.ddl

\b
Exit code: 0 done, 2 it could not be done.
"""


@pipeline.command(epilog=REDO_EPILOG, short_help="Decode the errors again, by a better schema.")
@click.argument("topic")
@_BROKER
@_WAREHOUSE
@click.option("--table", "table_name", metavar="NAME", help="The table's name, instead of the topic's.")
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="One with more fields; without it, the one that the table has by now.",
)
@_SOURCE_OPTION
@_SPARK
@_FILE
@_JSON
def redo(**options: Any) -> None:
    """Take the errors of TOPIC's table once more.

    What can be decoded now becomes rows and leaves TABLE__errors; the rest stays. May run beside the job.
    """
    with _told_in_a_line():
        from kwire.cli.pipeline.backfill import run_redo

        run_redo(**options)


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
@click.option(
    "--conf", multiple=True, callback=_settings, metavar="NAME=VALUE", help="A catalog's settings, as Spark's."
)
@_JSON
def status(**options: Any) -> None:
    """Show how the tables of WAREHOUSE stand. Starts no Spark."""
    with _told_in_a_line():
        from kwire.cli.pipeline.status import run_status

        run_status(**options)
