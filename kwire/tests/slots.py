"""Slots without a coroutine that waits for them."""

from __future__ import annotations

from typing import TypeVar

from kwire.waits import Slot

T = TypeVar("T")


def value_of(slot: Slot[T]) -> T:
    """What the slot was set to."""
    assert slot.is_set
    try:
        slot.__await__().send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("a slot that is set does not wait")
