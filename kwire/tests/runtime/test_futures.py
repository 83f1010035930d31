"""Futures: a request's wait, seen from both sides, with coroutines driven by hand as their connection would."""

from __future__ import annotations

import math
from collections.abc import Coroutine
from typing import Any

import pytest

from kwire.runtime.futures import Future, ParkedFetch, Pause, begun


async def value_of(future: Future[str]) -> str:
    return await future


async def outcome_of(parked: ParkedFetch) -> bool:
    return await parked


def answer_of(coroutine: Coroutine[Future[Any], None, Any]) -> Any:
    """Returns the result of a coroutine that has nothing to wait for any more."""
    with pytest.raises(StopIteration) as answered:
        coroutine.send(None)
    return answered.value.value


def test_a_future_that_is_set_already_is_not_waited_for() -> None:
    future = Future[str]()
    future.set("here")
    assert future.is_set
    assert answer_of(value_of(future)) == "here"


def test_a_coroutine_hands_out_the_future_it_waits_for_and_resumes_with_its_value() -> None:
    future = Future[str]()
    coroutine = value_of(future)
    assert coroutine.send(None) is future
    assert not future.is_set
    future.set("late")
    assert answer_of(coroutine) == "late"


@pytest.mark.parametrize("value", [None, False, 0, ""])
def test_a_value_that_counts_as_false_is_a_value(value: object) -> None:
    future = Future[object]()
    future.set(value)
    assert future.is_set

    async def waits() -> object:
        return await future

    assert answer_of(waits()) is value


def test_whoever_drives_the_waiter_is_called_once_and_finds_the_value() -> None:
    future = Future[str]()
    coroutine = value_of(future)
    coroutine.send(None)
    answers: list[str] = []
    future.when_set(lambda: answers.append(answer_of(coroutine)))
    assert answers == []
    future.set("now")
    assert answers == ["now"]


def test_a_coroutine_waits_for_one_future_after_the_other() -> None:
    futures = [Future[str](), Future[str]()]

    async def waits_twice() -> str:
        return await futures[0] + await futures[1]

    coroutine = waits_twice()
    assert coroutine.send(None) is futures[0]
    futures[0].set("a")
    assert coroutine.send(None) is futures[1]
    futures[1].set("b")
    assert answer_of(coroutine) == "ab"


def test_a_future_is_set_once_only() -> None:
    future = Future[str]()
    future.set("first")
    with pytest.raises(AssertionError, match="set once"):
        future.set("second")
    assert answer_of(value_of(future)) == "first"


def test_a_future_has_one_waiter_only() -> None:
    future = Future[str]()
    future.when_set(lambda: None)
    with pytest.raises(AssertionError, match="one waiter"):
        future.when_set(lambda: None)


def test_a_future_that_is_set_already_accepts_no_waiter() -> None:
    future = Future[str]()
    future.set("here")
    with pytest.raises(AssertionError, match="set already"):
        future.when_set(lambda: None)


def test_a_plain_future_has_no_time_and_cannot_be_given_up() -> None:
    future = Future[str]()
    assert future.timeout_s == math.inf
    assert not future.ends_on_input
    with pytest.raises(AssertionError, match="given up"):
        future.give_up()
    assert not future.is_set


def test_a_coroutine_that_is_closed_while_it_waits_clears_up_and_its_future_may_still_be_set() -> None:
    future = Future[str]()
    cleared: list[bool] = []

    async def waits() -> None:
        try:
            await future
        finally:
            cleared.append(True)

    coroutine = waits()
    coroutine.send(None)
    coroutine.close()
    assert cleared == [True]
    future.set("nobody waits")


def test_a_parked_fetch_ends_with_its_time_and_with_input() -> None:
    parked = ParkedFetch(0.5)
    assert parked.timeout_s == 0.5
    assert parked.ends_on_input


@pytest.mark.parametrize(
    ("calls", "outcome"),
    [
        (["wake"], True),
        (["give_up"], False),
        (["wake", "give_up"], True),
        (["give_up", "wake"], False),
        (["wake", "wake"], True),
        (["give_up", "give_up"], False),
    ],
)
def test_the_first_to_end_a_parked_fetch_counts_and_its_connection_is_notified_once(
    calls: list[str], outcome: bool
) -> None:
    parked = ParkedFetch(0.5)
    coroutine = outcome_of(parked)
    assert coroutine.send(None) is parked
    notified: list[bool] = []
    parked.when_set(lambda: notified.append(True))
    for call in calls:
        getattr(parked, call)()
    assert notified == [True]
    assert answer_of(coroutine) is outcome


def test_a_coroutine_that_was_begun_continues_beside_its_caller_and_leaves_its_result_or_its_error() -> None:
    first, second = Future[str](), Future[str]()

    async def joined() -> str:
        return await first + await second

    done = begun(joined())
    first.set("a")
    assert not done.is_set
    second.set("b")
    assert done.value.unwrap() == "ab"

    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        begun(fails()).value.unwrap()


def test_a_pause_ends_when_its_time_is_over_and_not_with_input() -> None:
    pause = Pause(3.0)
    assert (pause.timeout_s, pause.ends_on_input, pause.is_set) == (3.0, False, False)
    pause.give_up()
    pause.give_up()
    assert pause.is_set
