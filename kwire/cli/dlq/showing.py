"""`kwire dlq list` and `kwire dlq show`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Final

import attrs
import click

from kwire.admin.dead_letters.letters import Letter, Selection, read_span, spans_of
from kwire.admin.dead_letters.redriven import partition_offset
from kwire.admin.dead_letters.topics import Counted, DeadLetterTopic, count_letters, find_topics, redriven_so_far
from kwire.cli.columns import Row, printable, show
from kwire.cli.dlq.progress import counting_bar
from kwire.cli.log.printing import bytes_fields, bytes_text
from kwire.cli.reaching import Reach
from kwire.client.cluster import Cluster
from kwire.client.errors import UnknownTopic

_COUNT_COLUMNS: Final = {
    "topic": "TOPIC",
    "group_id": "GROUP",
    "origin_topic": "ORIGIN",
    "letters": "LETTERS",
    "redriven": "REDRIVEN",
    "first_timestamp_ms": "FIRST",
    "last_timestamp_ms": "LAST",
}
_LETTER_COLUMNS: Final = {
    "partition": "PARTITION",
    "offset": "OFFSET",
    "timestamp_ms": "TIME",
    "group_id": "GROUP",
    "origin": "ORIGIN",
    "delivery_count": "DELIVERIES",
    "redriven": "REDRIVEN",
    "reason": "REASON",
    "key": "KEY",
    "value": "VALUE",
}
_SHOWN_BYTES: Final = 40
_JSON_BYTES: Final = 4096
_LONGEST_CELL: Final = 80


def list_topics(reach: Reach, named: Collection[str], *, as_json: bool) -> None:
    rows: list[Row] = []
    with reach.cluster() as cluster:
        topics = find_topics(cluster, named)
        for topic in topics:
            if not topic.exists:
                if topic.name in named:
                    raise UnknownTopic(f"there is no topic {topic.name!r}")
                groups = ", ".join(topic.group_ids)
                note = f"note: share group {groups} names dead-letter topic {topic.name}, which does not exist"
                click.echo(printable(note), err=True)
            rows += _count_rows(cluster, topic)
    if as_json:
        show(rows, {}, as_json=True)
        return
    for row in rows:
        if row["type"] == "topic" and row["other_records"]:
            note = f"note: topic {row['topic']} has records that are no dead letters: {row['other_records']}"
            click.echo(printable(note), err=True)
    counted = [row for row in rows if row["type"] == "letters"]
    if counted:
        shown = [{**row, **{name: _short(row[name]) for name in ("group_id", "origin_topic")}} for row in counted]
        show(shown, _COUNT_COLUMNS, as_json=False)
    elif topics:
        click.echo(printable(f"there are no letters in {', '.join(it.name for it in topics)}"))
    else:
        click.echo("no share group names a dead-letter topic, and no topic is one: --topic names a topic to look at")


def _count_rows(cluster: Cluster, topic: DeadLetterTopic) -> Iterator[Row]:
    counted = Counted([])
    if topic.exists:
        with counting_bar(f"counting {topic.name}") as progress:
            counted = count_letters(cluster, topic.name, progress)
    yield {
        "type": "topic",
        "topic": topic.name,
        "exists": topic.exists,
        "group_ids": list(topic.group_ids),
        "letters": sum(it.letters for it in counted.counts),
        "other_records": counted.others,
    }
    for it in counted.counts:
        yield {"type": "letters", **attrs.asdict(it)}


def show_letters(
    reach: Reach,
    topic: str,
    selection: Selection,
    limit: int,
    max_value_bytes: int | None,
    *,
    as_json: bool,
) -> None:
    most = (_JSON_BYTES if as_json else _SHOWN_BYTES) if max_value_bytes is None else max_value_bytes
    rows: list[Row] = []
    count = others = 0
    is_cut = False
    with reach.cluster() as cluster:
        redriven = redriven_so_far(cluster, topic)
        for letter in _letters(cluster, topic, selection):
            if letter is None:
                others += 1
                continue
            if count == limit:
                is_cut = True
                break
            count += 1
            row = _letter_row(letter, most, redriven=partition_offset(letter.at, letter.offset) in redriven)
            if as_json:
                click.echo(json.dumps(row))
            else:
                rows.append(_cells(letter, row))
    if rows:
        show(rows, _LETTER_COLUMNS, as_json=False)
    elif not as_json:
        click.echo(printable(f"there is no such letter in {topic}"))
    if others:
        click.echo(printable(f"note: topic {topic} has records that are no dead letters: {others}"), err=True)
    if is_cut:
        click.echo("there are more letters: raise --limit, or choose some of them", err=True)


def _letters(cluster: Cluster, topic: str, selection: Selection) -> Iterator[Letter | None]:
    """Yields the selected letters, and None for a record that is no letter."""
    for span in spans_of(cluster, topic, selection):
        for record in read_span(cluster, span):
            letter = Letter.read(span.at, record)
            if letter is None or selection.matches(letter):
                yield letter


def _letter_row(it: Letter, most: int, *, redriven: bool) -> Row:
    return {
        "type": "letter",
        "topic": it.at.topic,
        "partition": it.at.partition,
        "offset": it.offset,
        "timestamp_ms": it.timestamp_ms,
        "group_id": it.group_id,
        "origin_topic": it.origin.at.topic,
        "origin_partition": it.origin.at.partition,
        "origin_offset": it.origin.offset,
        "delivery_count": it.delivery_count,
        "reason": it.reason,
        "redriven": redriven,
        "is_copy": it.is_copy,
        **bytes_fields("key", it.key, most),
        **bytes_fields("value", it.value, most),
        "headers": [{"name": name, **bytes_fields("value", value, most)} for name, value in it.headers],
    }


def _cells(letter: Letter, row: Row) -> Row:
    shown = {name: bytes_text(name, row) if letter.is_copy else None for name in ("key", "value")}
    texts = {name: _short(row[name]) for name in ("group_id", "reason")}
    return {
        **row,
        **shown,
        **texts,
        "origin": _short(str(letter.origin)),
        "redriven": "yes" if row["redriven"] else None,
    }


def _short(value: object) -> str | None:
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."
