"""Two brokers, one with fast paths and one without, that do the same things and are compared after each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from testkit.fast_paths.comparing import files_of, metrics_of, state_of
from testkit.fast_paths.still_broker import StillBroker


class Different(AssertionError):
    """The broker with fast paths has done something else than the other one."""


class Twins:
    def __init__(self, settings: Iterable[str] = ()) -> None:
        settings = tuple(settings)
        self.fast = StillBroker(settings, fast_paths=True)
        self.plain = StillBroker(settings, fast_paths=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in (self.fast, self.plain):
            broker.disk.before_operation = None
            with _logged():
                broker.close()

    def both(self, action: Callable[[StillBroker], Any], what: str = "an action") -> Any:
        """Does something with both brokers, with the same outcome, which is returned."""
        wanted = _outcome(action, self.plain)
        found = _outcome(action, self.fast)
        _compare(what, wanted, found)
        return wanted[0]

    def send(self, host: str, data: bytes) -> bytes:
        """Sends bytes to both brokers. Returns the bytes that they have sent at once."""
        sent: bytes = self.both(lambda it: it.send(host, data), f"{data.hex()} from {host}")[0]
        return sent

    def settle(self) -> list[bytes]:
        """Runs what is due in both. Returns the bytes that they have sent, for each connection."""
        return [sent for sent, _ in self.both(StillBroker.settle, "what is due")]

    def advance(self, by_ms: int) -> None:
        def advance(it: StillBroker) -> None:
            it.clock.time_ms += by_ms

        self.both(advance)
        self.settle()

    def compare_states(self) -> None:
        wanted, found = state_of(self.plain.broker), state_of(self.fast.broker)
        for name in wanted.keys() | found.keys():
            _compare(f"the state of {name}", wanted.get(name), found.get(name))

    def compare_all(self) -> None:
        self.compare_states()
        wanted, found = files_of(self.plain.disk), files_of(self.fast.disk)
        for path in wanted.keys() | found.keys():
            _compare(path, wanted.get(path), found.get(path))
        _compare("the metrics", metrics_of(self.plain.broker), metrics_of(self.fast.broker))


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Collects the log lines, and keeps them from the test's output."""
    logger, handler = logging.getLogger("kwire"), _Lines()
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


def _outcome(action: Callable[[StillBroker], Any], broker: StillBroker) -> tuple[Any, list[str]]:
    with _logged() as lines:
        try:
            return action(broker), lines
        except Exception as error:
            return (type(error), str(error)), lines


def _compare(what: str, wanted: object, found: object) -> None:
    if wanted != found:
        one, other = repr(wanted), repr(found)
        same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
        since = max(same - 200, 0)
        raise Different(f"{what}: without fast paths {one[since:][:600]}, with them {other[since:][:600]}")
