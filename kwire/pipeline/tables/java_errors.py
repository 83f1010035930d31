"""Tells apart the errors that Spark and Iceberg raise.

PySpark turns some of Java's exceptions into its own, and hands others through as py4j's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

CONFLICTS: Final = ("CommitFailedException", "ValidationException")
"""Of Iceberg's, for a table that is not as it was when the change began."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+): (.*)$", re.MULTILINE)


def is_conflict(error: PySparkException | Py4JJavaError) -> bool:
    """Whether somebody else's commit came in between, however deep it is wrapped."""
    if isinstance(error, Py4JJavaError):
        return any(cause.getClass().getSimpleName() in CONFLICTS for cause in _causes(error.java_exception))
    return any(name in str(error) for name in CONFLICTS)


def _causes(exception: Any) -> Iterator[Any]:
    while exception is not None:
        yield exception
        exception = exception.getCause()


def raised_in_task(error: Exception) -> tuple[str, str] | None:
    """The name of the class, and the message, of what a task raised in Python; None where it was Java that failed."""
    told = str(error)
    begin = told.find(_TRACEBACK)
    found = _RAISED.search(told, begin) if begin >= 0 else None
    return None if found is None else (found[1], found[2].strip())
