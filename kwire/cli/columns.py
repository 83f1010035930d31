"""Prints the result of a command, in columns for people or as JSON lines for scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click

from kwire.cli.log.printing import time_text

Row = Mapping[str, object]


def show(rows: Sequence[Row], columns: Mapping[str, str], *, as_json: bool) -> None:
    """Prints rows. `columns` maps the names of fields to headings. JSON has all fields, one object per line."""
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    lines = [list(columns.values()), *([cell(name, row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def printable(text: str) -> str:
    """Escapes control characters in names, so that they cannot control the terminal."""
    return text if text.isprintable() else ascii(text)[1:-1]


def cell(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and (name == "start_ms" or name.endswith("timestamp_ms")):
        return time_text(value)
    return printable(str(value))


def size_text(size: int) -> str:
    """Returns a number of bytes in a unit that suits it, such as 12.3 MiB."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:,.1f} TiB"
