"""Errors that end a job but are not bugs in it, and other libraries' errors in one line."""

from __future__ import annotations


class PipelineError(Exception):
    """What the user of a job can mend: one line that says what happened, to what, and what to do. Exit code 2."""


class Interrupted(PipelineError):
    """What ended a query, and may not end the next one: a job tries again, some times."""


def first_line(error: BaseException) -> str:
    """What went wrong, in a line; in Java's own words where it was Java, without its traceback."""
    java = getattr(error, "java_exception", None)
    said = str(error) if java is None else str(java.getMessage() or java.toString())
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
