"""Requests of a bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

MAX_BATCH: Final = 500
"""The maximum number of partitions, topics, producers or transactional ids in one request."""

T = TypeVar("T")


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(items)
    while some := list(islice(remaining, MAX_BATCH)):
        yield some
