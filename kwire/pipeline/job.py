"""A job's life cycle: it starts runs, restarts them after failures of brokers or warehouse, and stops on request.

A query ends with any error, mostly a Java message. The job does not interpret it but starts the run again. The new run
checks the table and the topic, and reports what a user can fix (deleted records, a replaced topic, unreachable
brokers). A failure that persists ends the job after a while.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import attrs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kwire.backoff import Backoff
from kwire.pipeline.brokers import Unreachable
from kwire.pipeline.errors import Interrupted, PipelineError, first_line

_TICK_S = 0.2
_PAUSES_S = Backoff(first=0.5, longest=10.0)
_ENDS_WITHOUT_PROGRESS = 5
"""The job ends after this many queries in a row without a commit, if the brokers were reachable."""
_STEADY_S = 60.0
"""A query that ran for this long counts as healthy, even if there was nothing to commit."""


class Query(Protocol):
    """Background work, such as a streaming query of Spark."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name

    def exception(self) -> Exception | None:
        """The error that ended it; None if it has finished."""


class Run(Protocol):
    """The unit of work of a job: one query, which is restarted after failures."""

    advanced_s: float
    """The time of its last progress, on the monotonic clock."""

    @property
    def query(self) -> Query | None: ...

    @property
    def failure(self) -> Exception | None: ...

    def start(self) -> None: ...

    def forget_query(self) -> None: ...

    def stop(self) -> None: ...

    def end(self) -> None: ...


@attrs.define(eq=False)
class _Running:
    run: Run
    began: bool = False
    """True if it ever had a query."""
    began_s: float = 0.0
    """The time when its last query began, on the monotonic clock."""
    ends: int = 0
    advanced_s: float = 0.0
    again_at_s: float = float("-inf")
    out_of_reach_since_s: float | None = None
    done: bool = False


@attrs.define(eq=False)
class Job:
    """A job of parallel runs. `give_up_after_s` is for unreachable brokers; `monotonic` returns seconds."""

    runs: Sequence[Run]
    give_up_after_s: float
    warned: Callable[[str], None]
    monotonic: Callable[[], float] = time.monotonic
    stop_requested: threading.Event = attrs.field(factory=threading.Event)

    def request_stop(self) -> None:
        """Requests a stop after the batches that are being written. May be called from a signal handler."""
        self.stop_requested.set()

    def work(self) -> None:
        """Returns when all runs are done, or after a stop. Raises PipelineError if a run failed for good."""
        running = [_Running(run) for run in self.runs]
        try:
            while not self.stop_requested.is_set() and not all(it.done for it in running):
                for it in running:
                    self._supervise(it)
                self.stop_requested.wait(_TICK_S)
        finally:
            for put_in_order in (*(it.run.stop for it in running), *(it.run.end for it in running)):
                self._warning_of_errors(put_in_order)

    def _supervise(self, it: _Running) -> None:
        query = it.run.query
        if it.done or self.monotonic() < it.again_at_s or (query is not None and query.isActive):
            return
        if query is not None:
            error = query.exception()
            if error is None:
                it.done = True
                return
            if self.monotonic() - it.began_s >= _STEADY_S:
                it.ends = 0
            failure = _as_pipeline_error(it.run.failure or error)
            it.run.forget_query()
            self._again(it, failure)
            return
        try:
            it.run.start()
        except (Unreachable, Interrupted) as error:
            self._again(it, error)
        except (PySparkException, Py4JError, OSError) as error:
            self._again(it, _as_pipeline_error(error))
        else:
            it.began, it.began_s, it.out_of_reach_since_s = True, self.monotonic(), None

    def _again(self, it: _Running, error: PipelineError) -> None:
        """Starts the run again, or raises the error if that is no use."""
        now_s = self.monotonic()
        if not it.began:
            raise error  # a wrong address, or a warehouse that cannot be written, is reported at once
        if it.run.advanced_s != it.advanced_s:
            it.advanced_s, it.ends = it.run.advanced_s, 0
        it.ends += 1
        if isinstance(error, Unreachable):
            if it.out_of_reach_since_s is None:
                it.out_of_reach_since_s = now_s
            hopeless = now_s - it.out_of_reach_since_s > self.give_up_after_s
        else:
            hopeless = it.ends >= _ENDS_WITHOUT_PROGRESS
        if hopeless:
            raise error
        it.again_at_s = now_s + _PAUSES_S.after(it.ends)
        said = str(error)
        self.warned(f"{said}{'' if said.endswith(('.', '?')) else '.'} The job starts again where it was")

    def _warning_of_errors(self, put_in_order: Callable[[], None]) -> None:
        """Calls a clean-up, and reports its error as a warning: it must not hide why the job ended, nor stop others."""
        try:
            put_in_order()
        except (PipelineError, PySparkException, Py4JError, OSError) as error:
            self.warned(f"not all was put in order at the end: {first_line(error)}")


@contextmanager
def stopping_on_signals(job: Job) -> Iterator[None]:
    """SIGINT and SIGTERM request a stop of the job; a second signal ends the process as usual."""

    def stop(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)])
        job.request_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_pipeline_error(error: Exception) -> PipelineError:
    """The error that ended a query, in one line. Raises errors that another start cannot fix."""
    if isinstance(error, (Unreachable, Interrupted)):
        return error
    if isinstance(error, (PySparkException, Py4JError, OSError)):
        return PipelineError(first_line(error))
    raise error
