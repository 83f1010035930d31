"""`kwire query`: find records of a topic by fields, in its index and the topic's tail. No Spark."""

from __future__ import annotations

from typing import Any

import click

from kwire.cli.pipeline.options import BROKER, CATALOG_CONF, INDEX_TABLE, JSON, WAREHOUSE, one_line_errors

EPILOG = """\b
Examples:
  kwire query logs --to warehouse --where "user_id = 42"
  kwire query logs --to warehouse --where "status IN ('new', 'paid') AND total >= 10.5" --since 2h --json
  kwire query logs --to warehouse --where "key = 'k7' OR offset BETWEEN 100 AND 200" --limit 10

\b
Conditions: = != < <= > >=, IN, BETWEEN, IS NULL, AND, OR, NOT and parentheses, on the indexed fields and on
Kafka's key, partition, offset and timestamp.

\b
Exit code: 0 the query ran, even if it found nothing; 2 it could not run, and one line says why.
"""


@click.command(epilog=EPILOG, short_help="Find records of a topic by fields, in its index.")
@click.argument("topic")
@click.option("--where", metavar="CONDITION", help="Condition that the records must meet.")
@click.option("--since", metavar="TIME", help="Earliest time: 2026-01-31, 2026-01-31T12:00:00Z, 90m (ago), or ms.")
@click.option("--until", metavar="TIME", help="Latest time, exclusive.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    metavar="N",
    help="Maximum number of records, oldest first.",
)
@click.option(
    "--tail-limit",
    type=click.IntRange(min=0),
    default=200_000,
    show_default=True,
    metavar="N",
    help="Maximum number of offsets, not indexed yet, to read from the brokers; 0 reads the index only.",
)
@BROKER
@WAREHOUSE
@CATALOG_CONF
@INDEX_TABLE
@JSON
def query(**options: Any) -> None:
    """Find records of TOPIC by the fields of its index.

    kwire pipeline index maintains the index. Records that are not indexed yet are read from the brokers, so the answer
    is current. Standard error shows how far the index is. Needs pip install 'kwire[pipeline]', but no Java.
    """
    with one_line_errors("kwire query", ("duckdb", "pyarrow", "pyiceberg", "sqlalchemy"), whose="it needs"):
        from kwire.cli.querying import run_query

        run_query(**options)
