"""Classifies the errors that Spark and Iceberg raise.

PySpark converts some of Java's exceptions into its own, and passes others on as py4j's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

CONFLICTS: Final = ("CommitFailedException", "ValidationException")
"""Iceberg's errors for a table that has changed since the change began."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+): (.*)$", re.MULTILINE)


def is_conflict(error: PySparkException | Py4JJavaError) -> bool:
    """Returns True if another writer's commit came in between, however deep the error is wrapped."""
    if isinstance(error, Py4JJavaError):
        return any(cause.getClass().getSimpleName() in CONFLICTS for cause in _causes(error.java_exception))
    return any(name in str(error) for name in CONFLICTS)


def _causes(exception: Any) -> Iterator[Any]:
    while exception is not None:
        yield exception
        exception = exception.getCause()


def raised_in_task(error: Exception) -> tuple[str, str] | None:
    """The class name and message of an error that a task raised in Python; None if Java failed."""
    text = str(error)
    begin = text.find(_TRACEBACK)
    found = _RAISED.search(text, begin) if begin >= 0 else None
    return None if found is None else (found[1], found[2].strip())
