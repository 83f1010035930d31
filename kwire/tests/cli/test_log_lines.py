"""The log stays readable, whatever is written to it."""

from __future__ import annotations

import logging
import sys

from kwire.cli.log_lines import MAX_LINE_LENGTH, LineFormatter


def formatted(message: str, *arguments: object, exc_info: bool = False) -> str:
    record = logging.LogRecord(
        "kwire", logging.WARNING, "", 0, message, arguments, sys.exc_info() if exc_info else None
    )
    return LineFormatter().format(record)


def test_a_line_has_its_time_severity_and_message() -> None:
    assert formatted("closing %s", "it")[19:] == " WARNING closing it"


def test_what_cannot_be_printed_is_escaped() -> None:
    assert formatted("%s", "a\nb\x1b[31m\0é")[19:] == " WARNING a\\nb\\x1b[31m\\x00é"


def test_long_lines_are_cut() -> None:
    line = formatted("%s", "x" * 40_000)
    assert len(line) == MAX_LINE_LENGTH
    assert line.endswith("x...")
    assert len(formatted("%s", "\n" * 40_000)) == MAX_LINE_LENGTH


def test_a_traceback_follows_whole() -> None:
    try:
        raise ValueError("y" * 2000)
    except ValueError:
        text = formatted("a bug", exc_info=True)
    assert text.splitlines()[0].endswith("a bug")
    assert text.endswith("y" * 2000)
