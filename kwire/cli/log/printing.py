"""Prints rows as JSON lines or as columns. Each row is written at once, so a dump of any size streams.

Text that clients sent is quoted in columns, so that it cannot move the cursor or break the layout.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

Row = dict[str, object]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_MS = int((datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * 1000

# Heading and width. The last column takes the width it needs.
_COLUMNS: dict[str, list[tuple[str, str, int]]] = {
    "batch": [
        ("base_offset", "BASE", 10),
        ("last_offset", "LAST", 10),
        ("records_count", "RECORDS", 7),
        ("size_bytes", "BYTES", 8),
        ("position", "POSITION", 10),
        ("codec", "CODEC", 6),
        ("producer_id", "PRODUCER", 8),
        ("producer_epoch", "EPOCH", 5),
        ("base_sequence", "SEQUENCE", 8),
        ("leader_epoch", "LEADER", 6),
        ("max_timestamp_ms", "MAX TIMESTAMP", 24),
        ("timestamp_type", "TYPE", 13),
        ("flags", "FLAGS AND PROBLEMS", 0),
    ],
    "index_entry": [("offset", "OFFSET", 12), ("position", "POSITION", 0)],
    "time_index_entry": [("timestamp_ms", "TIMESTAMP", 24), ("offset", "OFFSET", 0)],
    "aborted_transaction": [
        ("producer_id", "PRODUCER", 12),
        ("first_offset", "FIRST", 12),
        ("last_offset", "LAST", 12),
        ("last_stable_offset", "LAST STABLE", 0),
    ],
    "producer": [
        ("producer_id", "PRODUCER", 12),
        ("producer_epoch", "EPOCH", 5),
        ("first_sequence", "FIRST SEQUENCE", 14),
        ("last_sequence", "LAST SEQUENCE", 13),
        ("first_offset", "FIRST OFFSET", 12),
        ("last_offset", "LAST OFFSET", 12),
        ("last_timestamp_ms", "LAST TIMESTAMP", 24),
        ("coordinator_epoch", "COORDINATOR EPOCH", 17),
        ("current_transaction_first_offset", "OPEN SINCE", 0),
    ],
    "checkpoint": [("offset", "OFFSET", 12), ("partition", "PARTITION", 9), ("topic", "TOPIC", 0)],
    "leader_epoch": [("epoch", "EPOCH", 8), ("start_offset", "START OFFSET", 0)],
}


class Printer:
    """Writes rows to standard output. If the reader closes the pipe, click ends the command quietly."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._path: object = None
        self._type: object = None
        self._out = sys.stdout

    def write(self, row: Row) -> None:
        if self._as_json:
            self._out.write(json.dumps(row, separators=(",", ":")) + "\n")
            return
        if row.get("path") != self._path:
            self._out.write(f"{'' if self._path is None else chr(10)}{row.get('path')}\n")
            self._path, self._type = row.get("path"), None
        row_type = str(row["type"])
        columns = _COLUMNS.get(row_type)
        if columns is None:
            self._out.write(_line(row_type, row) + "\n")
            return
        if row_type != self._type and not (self._type == "record" and row_type == "batch"):
            self._out.write(_fields([heading for _, heading, _ in columns], columns) + "\n")
            self._type = row_type
        if row_type == "batch":
            row["flags"] = _flags(row)
        self._out.write(_fields([_cell(name, row.get(name)) for name, _, _ in columns], columns) + "\n")

    def finish(self) -> None:
        # Not at the interpreter's exit, where a closed pipe would print a traceback.
        self._out.flush()


def _fields(cells: list[str], columns: list[tuple[str, str, int]]) -> str:
    return "  " + "  ".join(
        cell if not width else cell.rjust(width) for cell, (_, _, width) in zip(cells, columns, strict=True)
    )


def _cell(name: str, value: object) -> str:
    if value is None:
        return "-"
    if name.endswith("timestamp_ms") and isinstance(value, int):
        return time_text(value)
    text = str(value)
    return text if text.isprintable() else ascii(text)


def _flags(row: Row) -> str:
    flags = [name for name in ("transactional", "control") if row.get(f"is_{name}")]
    if row.get("delete_horizon_ms") is not None:
        flags.append(f"tombstones until {_cell('timestamp_ms', row['delete_horizon_ms'])}")
    if row.get("problem"):
        flags.append(f"BAD: {row['problem']}")
    return ", ".join(flags) or "-"


def _line(row_type: str, row: Row) -> str:
    if row_type == "record":
        return _record_line(row)
    if row_type == "damage":
        return f"  BAD: {row['position']}..{row['end_position']} ({row['size_bytes']} bytes): {row['what']}"
    if row_type == "problem":
        where = f" at {row['position']}" if "position" in row else ""
        return f"  BAD{where}: {row['what']}"
    return "  " + "  ".join(
        f"{name}: {_cell(name, value)}" for name, value in row.items() if name not in ("type", "path")
    )


def _record_line(row: Row) -> str:
    parts = [f"  | offset {row['offset']}  {_cell('timestamp_ms', row['timestamp_ms'])}"]
    for name in ("key", "value"):
        if f"decoded_{name}" in row:
            parts.append(f"{name}={json.dumps(row[f'decoded_{name}'])}")
        elif name in row:
            parts.append(f"{name}={bytes_text(name, row)}")
    headers = row.get("headers")
    if isinstance(headers, list) and headers:
        headers_text = ", ".join(f"{_quoted(str(header['name']))}={bytes_text('value', header)}" for header in headers)
        parts.append(f"headers={{{headers_text}}}")
    if row.get("tombstone"):
        parts.append("tombstone")
    if "not_decoded" in row:
        parts.append(f"(not decoded: {row['not_decoded']})")
    return "  ".join(parts)


def bytes_fields(name: str, data: bytes | None, most: int) -> Row:
    """The bytes as text or base64, truncated to `most`, unless that is 0; the size is that of all the bytes."""
    if data is None:
        return {name: None}
    shown = data[:most] if most and len(data) > most else data
    fields: Row = {f"{name}_size_bytes": len(data)}
    try:
        # Truncating in the middle of a character must not turn the text into base64.
        text = shown.decode(errors="strict" if shown is data else "ignore")
    except UnicodeDecodeError:
        text = None
    if text is None or not all(letter.isprintable() or letter in "\n\r\t" for letter in text):
        text = base64.b64encode(shown).decode()
        fields[f"{name}_encoding"] = "base64"
    if shown is not data:
        fields[f"{name}_cut"] = True
    return {name: text, **fields}


def bytes_text(name: str, row: Mapping[str, object]) -> str:
    """Returns the fields that `bytes_fields` made as text for a column."""
    value = row[name]
    if value is None:
        return "null"
    text = f"base64:{value}" if f"{name}_encoding" in row else _quoted(str(value))
    return f"{text}... ({row[f'{name}_size_bytes']} bytes)" if row.get(f"{name}_cut") else text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def time_text(timestamp_ms: int) -> str:
    """ISO 8601 in UTC; the number itself if it is out of the calendar's range."""
    if not 0 <= timestamp_ms < _MOST_MS:
        return str(timestamp_ms)
    return f"{_EPOCH + timedelta(milliseconds=timestamp_ms):%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
