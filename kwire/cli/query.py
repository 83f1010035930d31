"""`kwire query`: records of a topic by fields, out of its index and the topic's tail. No Spark."""

from __future__ import annotations

import sys
from typing import Any

import click

EPILOG = """\b
Examples:
  kwire query logs --to warehouse --where "user_id = 42"
  kwire query logs --to warehouse --where "status IN ('new', 'paid') AND total >= 10.5" --since 2h --json
  kwire query logs --to warehouse --where "key = 'k7' OR offset BETWEEN 100 AND 200" --limit 10

\b
Conditions: = != < <= > >=, IN, BETWEEN, IS NULL, AND, OR, NOT, parentheses; of the indexed fields,
and of Kafka's key, partition, offset and timestamp.

\b
Exit code: 0 answered, also when nothing was found; 2 it cannot be answered, and one line says why.
"""


@click.command(epilog=EPILOG, short_help="Find records of a topic by fields, in its index.")
@click.argument("topic")
@click.option("--where", metavar="CONDITION", help="What the records have to meet.")
@click.option("--since", metavar="TIME", help="Not older: 2026-01-31, 2026-01-31T12:00:00Z, 90m (ago), or ms.")
@click.option("--until", metavar="TIME", help="Older than that.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    metavar="N",
    help="The first N, by time.",
)
@click.option(
    "--tail-limit",
    type=click.IntRange(min=0),
    default=200_000,
    show_default=True,
    metavar="N",
    help="The most offsets that are read from the brokers because they are not indexed yet; 0 asks the index alone.",
)
@click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="A broker of the cluster; several with commas.",
)
@click.option(
    "--to",
    "warehouse",
    required=True,
    metavar="WAREHOUSE",
    help="Where the index is: a folder; or catalog:NAME, configured by --conf.",
)
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of the catalog's, as for Spark.")
@click.option("--table", "table_name", metavar="NAME", help="The index's table, instead of TOPIC__index.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, under names that stay.")
def query(**options: Any) -> None:
    """Find records of TOPIC by the fields of its index.

    kwire pipeline index keeps the index. What it has not got yet is read from the brokers, so the answer is of this
    moment. How far the index is, is told on standard error. Needs pip install 'kwire[pipeline]', and no Java.
    """
    from kwire.pipeline.errors import PipelineError
    from kwire.pipeline.session import check_packages

    try:
        check_packages(("duckdb", "pyarrow", "pyiceberg", "sqlalchemy"), whose="it needs")
        from kwire.cli.querying import run_query

        run_query(**options)
    except PipelineError as error:
        click.echo(f"kwire query: {error}", err=True)
        sys.exit(2)
