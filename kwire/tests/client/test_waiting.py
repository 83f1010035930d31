"""Retries: the errors that they are for, their pauses, and their deadline."""

from __future__ import annotations

import pytest

from kwire.client.errors import ClientError, ConnectionFailed
from kwire.client.waiting import SystemClock, until_done
from testkit.fakes.brokers import FakeClock


def failing(times: int, error: ClientError) -> list[ClientError]:
    return [error] * times


def run(clock: FakeClock, errors: list[ClientError], timeout_s: float = 60.0) -> list[str]:
    seen: list[str] = []

    def attempt() -> list[str]:
        if errors:
            raise errors.pop()
        return seen

    return until_done(attempt, clock=clock, timeout_s=timeout_s, before_again=lambda it: seen.append(it.message))


def test_pauses_grow_up_to_the_longest() -> None:
    clock = FakeClock()
    assert run(clock, failing(8, ConnectionFailed("gone"))) == ["gone"] * 8
    assert clock.slept_s == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]


def test_what_does_not_pass_is_raised_at_once() -> None:
    clock = FakeClock()
    with pytest.raises(ClientError, match="never"):
        run(clock, failing(1, ClientError("never")))
    assert clock.slept_s == []


def test_the_deadline_is_kept() -> None:
    clock = FakeClock()
    with pytest.raises(ConnectionFailed, match="gone"):
        run(clock, failing(100, ConnectionFailed("gone")), timeout_s=1)
    assert clock.slept_s == [0.02, 0.04, 0.08, 0.16, 0.32]


def test_the_system_s_clock_advances() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.001)
    assert clock.monotonic() > before
