"""Processes of their own for the clients, and the pipe that each talks through.

A worker does one small piece of work after another until the conductor says that it is enough. Then it settles (flushes
what it has sent), and judges as often as it is asked to. What it counts and what it complains of goes through the pipe
at once, so that nothing is lost with a worker that is killed.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Protocol, TypeAlias

import attrs

ANSWERS_WITHIN_S = 120.0
_REPORT_EVERY_S = 0.5


@attrs.frozen
class Counted:
    """How often what was done since the last report."""

    counts: Counter[str]


@attrs.frozen
class Complaint:
    """What must not be."""

    text: str


@attrs.frozen
class Ready:
    """The worker begins."""


@attrs.frozen
class Done:
    """A command was carried out."""


Message: TypeAlias = object
"""Counted, Complaint, Done, or whatever a kind of worker has for its ledger."""


@attrs.define(eq=False)
class Reporter:
    """The worker's side of the pipe."""

    _pipe: Connection
    _counts: Counter[str] = attrs.field(factory=Counter)
    _next_report_s: float = 0.0

    @property
    def is_stopped(self) -> bool:
        """Whether the conductor wants something: the piece of work at hand is the last."""
        return self._pipe.poll()

    def count(self, what: str, by: int = 1) -> None:
        self._counts[what] += by
        if time.monotonic() >= self._next_report_s:
            self.flush()

    def complain(self, text: str) -> None:
        self.send(Complaint(text))

    def send(self, message: Message) -> None:
        self._pipe.send(message)

    def flush(self) -> None:
        counts, self._counts = self._counts, Counter()
        self._next_report_s = time.monotonic() + _REPORT_EVERY_S
        self.send(Counted(counts))


class Work(Protocol):
    """What a worker does."""

    def step(self) -> None:
        """A piece of work, of a second or so."""

    def settle(self) -> None:
        """Comes to rest: what was sent is acknowledged, or given up. Keeps no connection."""

    def judge(self) -> None:
        """Compares what the broker has with what was told. May be called several times. Keeps no connection."""

    def leave(self) -> None:
        """Deletes what it made, as far as it is not needed any more."""

    def close(self) -> None: ...


MakeWork: TypeAlias = Callable[[Reporter], Work]


def _main(make: MakeWork, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the conductor's to handle
    reporter = Reporter(pipe)
    try:
        work = make(reporter)
        reporter.send(Ready())
        while not reporter.is_stopped:
            work.step()
        for command in iter(pipe.recv, "close"):
            getattr(work, command)()
            reporter.flush()
            reporter.send(Done())
        work.close()
        reporter.flush()
    except (EOFError, BrokenPipeError):
        pass  # the conductor is gone
    except Exception:
        reporter.complain(f"a client ended:\n{traceback.format_exc()}")


class Worker:
    """A process that works, seen by the conductor. `hear` is called with each message but `Ready` and `Done`."""

    def __init__(self, name: str, make: MakeWork, hear: Callable[[Message], None]) -> None:
        self.name = name
        self.is_ready = False
        self._hear = hear
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_main, args=(make, theirs), name=name, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """As of `multiprocessing`: minus the number of the signal that ended it."""
        return self._process.exitcode

    def listen(self) -> None:
        """Takes what the worker has said."""
        try:
            while self._pipe.poll():
                self._take(self._pipe.recv())
        except (EOFError, ConnectionResetError):
            pass

    def begin(self, command: str) -> None:
        """Has it do something; `wait` returns when it is done."""
        self._pipe.send(command)

    def wait(self, what: str) -> None:
        until = time.monotonic() + ANSWERS_WITHIN_S
        while (left := until - time.monotonic()) > 0:
            if not self._pipe.poll(left):
                break
            try:
                message = self._pipe.recv()
            except (EOFError, ConnectionResetError):
                raise AssertionError(f"{self.name} ended when it was told to {what}") from None
            if isinstance(message, Done):
                return
            self._take(message)
        raise AssertionError(f"{self.name} did not {what} within {ANSWERS_WITHIN_S} s")

    def _take(self, message: Message) -> None:
        if isinstance(message, Ready):
            self.is_ready = True
        elif not isinstance(message, Done):
            self._hear(message)

    def kill(self) -> None:
        """SIGKILL, in the midst of whatever it does. What it said before is heard. May be called again."""
        if self._pipe.closed:
            return
        self._process.kill()
        self._process.join()
        self.listen()
        self._pipe.close()

    def close(self) -> None:
        """Ends it when it has come to rest."""
        self._pipe.send("close")
        self._process.join(ANSWERS_WITHIN_S)
        self.kill()
