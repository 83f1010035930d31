"""Worker processes for the clients, and the pipe of each to the conductor.

A worker does one small step after the other until the conductor sends a command. Then it settles (flushes its records),
and judges as often as it is commanded. Its counts and complaints are sent through the pipe at once, so that nothing is
lost with a worker that is killed.
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
    """The numbers of operations since the last report."""

    counts: Counter[str]


@attrs.frozen
class Complaint:
    """A violation of a promise."""

    text: str


@attrs.frozen
class Ready:
    """The worker begins."""


@attrs.frozen
class Done:
    """A command was carried out."""


Message: TypeAlias = object
"""Counted, Complaint, Done, or a message of a kind of worker for its ledger."""


@attrs.define(eq=False)
class Reporter:
    """The worker's side of the pipe."""

    _pipe: Connection
    _counts: Counter[str] = attrs.field(factory=Counter)
    _next_report_s: float = 0.0

    @property
    def is_stopped(self) -> bool:
        """True if the conductor has sent a command: the current step is the last."""
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
    """The work of a worker."""

    def step(self) -> None:
        """A piece of work, of a second or so."""

    def settle(self) -> None:
        """Waits until all sent records are acknowledged, or given up. Keeps no connection."""

    def judge(self) -> None:
        """Compares the broker's data with the acknowledgements. May be called several times. Keeps no connection."""

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
    """A worker process, seen from the conductor. `on_message` gets each message except `Ready` and `Done`."""

    def __init__(self, name: str, make: MakeWork, on_message: Callable[[Message], None]) -> None:
        self.name = name
        self.is_ready = False
        self._on_message = on_message
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
        """The exit code, as in `multiprocessing`: minus the number of the signal that ended it."""
        return self._process.exitcode

    def listen(self) -> None:
        """Receives the messages of the worker."""
        try:
            while self._pipe.poll():
                self._take(self._pipe.recv())
        except (EOFError, ConnectionResetError):
            pass

    def begin(self, command: str) -> None:
        """Begins a command; `wait` returns when it is done."""
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
            self._on_message(message)

    def kill(self) -> None:
        """Kills it with SIGKILL, in the middle of its work. Earlier messages are received. May be called again."""
        if self._pipe.closed:
            return
        self._process.kill()
        self._process.join()
        self.listen()
        self._pipe.close()

    def close(self) -> None:
        """Ends it after its last command."""
        self._pipe.send("close")
        self._process.join(ANSWERS_WITHIN_S)
        self.kill()
