"""The client's clock, and its retries: with growing pauses, until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from kwire.backoff import Backoff
from kwire.client.errors import ClientError

PAUSES_S: Final = Backoff(first=0.02, longest=1.0)

T = TypeVar("T")


class Clock(Protocol):
    def monotonic(self) -> float:
        """Returns the seconds since an arbitrary moment; monotonic."""
        ...

    def sleep(self, seconds: float, /) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


def until_done(
    attempt: Callable[[], T],
    *,
    clock: Clock,
    timeout_s: float,
    before_again: Callable[[ClientError], None] | None = None,
) -> T:
    """Returns the result of `attempt`. Retries it, after `before_again`, if it raises a ClientError that may pass.

    Raises the last such error if the next pause would exceed `timeout_s`. Any other error is raised at once.
    """
    deadline_s = clock.monotonic() + timeout_s
    for pause_s in PAUSES_S:
        try:
            return attempt()
        except ClientError as error:
            if not error.may_pass or clock.monotonic() + pause_s > deadline_s:
                raise
            if before_again is not None:
                before_again(error)
        clock.sleep(pause_s)
    raise AssertionError("there is always another pause")
