"""Errors that end a job but are not bugs in it, and other libraries' errors in one line."""

from __future__ import annotations


class PipelineError(Exception):
    """An error that the user can fix: one line with what happened, to what, and what to do. Exit code 2."""


class Interrupted(PipelineError):
    """An error that ended a query and may not recur: the job retries a few times."""


def first_line(error: BaseException) -> str:
    """The error in one line. An error of Java has Java's message, without the traceback."""
    java = getattr(error, "java_exception", None)
    said = str(error) if java is None else str(java.getMessage() or java.toString())
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
