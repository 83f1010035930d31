"""What Spark and Iceberg raise, told in a line or told apart.

PySpark turns some of Java's exceptions into its own, and hands others through as py4j's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

CONFLICTS: Final = ("CommitFailedException", "ValidationException")
"""Of Iceberg's, for a table that is not as it was when the change began."""


def first_words(error: Exception) -> str:
    """One line, without the class and the stack."""
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def is_conflict(error: PySparkException | Py4JJavaError) -> bool:
    """Whether somebody else's commit came in between, however deep it is wrapped."""
    if isinstance(error, Py4JJavaError):
        return any(cause.getClass().getSimpleName() in CONFLICTS for cause in _causes(error.java_exception))
    return any(name in str(error) for name in CONFLICTS)


def _causes(exception: Any) -> Iterator[Any]:
    while exception is not None:
        yield exception
        exception = exception.getCause()
