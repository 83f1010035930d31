"""Runs `kwire query` and prints the answer as a table or as JSON."""

from __future__ import annotations

import base64
import json

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kwire.cli.log.printing import time_text
from kwire.pipeline.clock import now_ms
from kwire.pipeline.index.found import FoundRecord
from kwire.pipeline.index.query import Answer, Freshness, Query, execute
from kwire.pipeline.moments import parse_moment
from kwire.pipeline.tables.plan import table_of
from kwire.pipeline.warehouse import index_table_name, parse_warehouse

_SHOWN_CHARACTERS = 200
"""Maximum length of a value in the table."""


def run_query(
    *,
    topic: str,
    where: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    tail_limit: int,
    bootstrap: str,
    warehouse: str,
    conf: dict[str, str],
    table_name: str | None,
    as_json: bool,
) -> None:
    """Raises PipelineError."""
    at_ms = now_ms()
    query = Query(
        topic=topic,
        bootstrap=bootstrap,
        warehouse=parse_warehouse(warehouse, conf),
        table=index_table_name(table_of(topic, None)) if table_name is None else table_of(topic, table_name),
        where=where,
        since_ms=None if since is None else parse_moment(since, now_ms=at_ms),
        until_ms=None if until is None else parse_moment(until, now_ms=at_ms),
        limit=limit,
        tail_limit=tail_limit,
    )
    answer = execute(query, now_ms=at_ms)
    if as_json:
        for it in answer.records:
            click.echo(json.dumps(as_json_object(it)))
        click.echo(json.dumps({**answer.freshness.describe(), "is_cut": answer.is_cut}), err=True)
    else:
        _print(answer)


def as_json_object(record: FoundRecord) -> dict[str, object]:
    """Returns the record under stable names. Bytes that are not UTF-8 are in base64, with the encoding named."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        **_bytes("key", record.key),
        **_bytes("value", record.value),
        "headers": [{"name": name, **_bytes("value", value)} for name, value in record.headers],
        "fields": dict(record.fields),
        "indexed": not record.is_tail,
    }


def _bytes(name: str, value: bytes | None) -> dict[str, object]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode(), f"{name}_encoding": "base64"}


def _print(answer: Answer) -> None:
    if answer.records:
        names = list(answer.records[0].fields)
        table = Table()
        for heading in ("timestamp", "partition", "offset", "key", *names, "value"):
            table.add_column(heading, overflow="fold")
        for it in answer.records:
            cells = [time_text(it.timestamp_ms), str(it.partition), str(it.offset), _text(it.key)]
            cells += [_shown(it.fields[name]) for name in names]
            table.add_row(*map(Text, (*cells, _text(it.value))))
        Console().print(table)
    found = f"{len(answer.records):,} records"
    cut = ", and there are more: raise --limit" if answer.is_cut else ""
    click.echo(f"{found}{cut}. {_freshness(answer.freshness)}", err=True)


def _shown(value: object) -> str:
    return "-" if value is None else _quoted(value) if isinstance(value, str) else json.dumps(value)


def _text(value: bytes | None) -> str:
    """A value, truncated. Quoted, because clients may send control characters."""
    if value is None:
        return "null"
    return _quoted(value[: 4 * _SHOWN_CHARACTERS].decode(errors="backslashreplace"))


def _quoted(text: str) -> str:
    cut = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return cut if cut.isprintable() else ascii(cut)[1:-1]


def _freshness(it: Freshness) -> str:
    text = f"The index has {it.rows:,} rows and is {it.age_s:,.0f} s old"
    if it.lag is None:
        return f"{text}; newer records were not read"
    lag = sum(it.lag.values())
    text += f"; {lag:,} newer offsets were read from the brokers" if lag else "; there are no newer records"
    if it.not_indexed:
        text += f", and {it.not_indexed:,} records there do not match the types of the fields"
    if it.lost:
        text += f". Records deleted before they were indexed: {', '.join(map(str, it.lost))}"
    return text
