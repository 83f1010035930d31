"""Futures without a coroutine that waits for them, and coroutines that do not wait."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from kwire.replicas.acknowledging import Acknowledgement
from kwire.replicas.partition import Partition
from kwire.runtime.futures import Future

T = TypeVar("T")


def value_of(future: Future[T]) -> T:
    """Returns the value of the future."""
    assert future.is_set
    try:
        future.__await__().send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("a future that is set does not wait")


def at_once(coroutine: Coroutine[Any, None, T]) -> T:
    """Returns the answer of a handler that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def acknowledgement(partition: Partition, last_offset: int, acks: int = 1) -> Acknowledgement:
    """Returns a future for the acknowledgement of the append that ends there. It is set if that is done already."""
    future = partition.when_committed(last_offset, acks)
    if future is None:
        future = Acknowledgement()
        future.set(None)
    return future
