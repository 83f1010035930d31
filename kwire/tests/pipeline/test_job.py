"""The life of a job, with fake runs, on a clock that only waiting moves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

from kwire.pipeline.brokers import Unreachable
from kwire.pipeline.errors import Interrupted, PipelineError
from kwire.pipeline.job import Job, Query, stopping_on_signals


@attrs.define(eq=False)
class FakeQuery:
    isActive: bool = True  # noqa: N815 # as Spark calls it
    error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error


class Clock(threading.Event):
    """Time, and the event that a job waits for: a wait moves it on, and then something may happen."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.happens: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now_s += timeout
        due = [what for at_s, what in self.happens if at_s <= self.now_s]
        self.happens = [it for it in self.happens if it[0] > self.now_s]
        for what in due:
            what()
        assert self.now_s < 20_000, "the job never ends"
        return self.is_set()

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.happens.append((self.now_s + seconds, what))


@attrs.define(eq=False)
class FakeRun:
    """Each start is the next of `starts`: an error that it raises, or what is called with its query."""

    clock: Clock
    starts: list[Exception | Callable[[FakeRun], None]]
    query: Query | None = None
    failure: Exception | None = None
    advanced_s: float = 0.0
    started_s: list[float] = attrs.field(factory=list)
    calls: list[str] = attrs.field(factory=list)
    stop_raises: Exception | None = None

    def start(self) -> None:
        self.started_s.append(self.clock.now_s)
        self.failure = None
        what = self.starts.pop(0) if len(self.starts) > 1 else self.starts[0]
        if isinstance(what, Exception):
            raise what
        self.query = FakeQuery()
        what(self)

    def forget_query(self) -> None:
        self.query = None

    def stop(self) -> None:
        self.calls.append("stop")
        if self.stop_raises is not None:
            raise self.stop_raises

    def end(self) -> None:
        self.calls.append("end")

    def over(self, error: Exception | None = None, failure: Exception | None = None) -> None:
        assert self.query is not None
        self.failure = failure
        fake = cast("FakeQuery", self.query)
        fake.isActive, fake.error = False, error


def ends(
    after_s: float = 1.0, error: Exception | None = None, *, failure: Exception | None = None, commits: bool = False
) -> Callable[[FakeRun], None]:
    """Makes a query that is over after a while."""

    def begun(run: FakeRun) -> None:
        def end() -> None:
            if commits:
                run.advanced_s = run.clock.now_s
            run.over(error, failure)

        run.clock.after(after_s, end)

    return begun


def runs_on(_run: FakeRun) -> None:
    pass


def job(clock: Clock, *runs: FakeRun, give_up_after_s: float = 100.0) -> tuple[Job, list[str]]:
    warned: list[str] = []
    return Job(runs, give_up_after_s, warned.append, clock.monotonic, clock), warned


JAVA = StreamingQueryException("[STREAM_FAILED] it went wrong\nat org.apache.spark\nat java.lang")
AWAY = Unreachable("the brokers are away")


def test_a_job_ends_when_all_its_runs_are_done() -> None:
    clock = Clock()
    runs = [FakeRun(clock, [ends(after_s)]) for after_s in (1.0, 5.0)]
    it, warned = job(clock, *runs)
    it.work()
    assert 1005.0 <= clock.now_s < 1006.0
    assert [run.calls for run in runs] == [["stop", "end"], ["stop", "end"]]
    assert [len(run.started_s) for run in runs] == [1, 1]
    assert warned == []


def test_a_start_that_is_interrupted_is_tried_again_a_few_times() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(error=JAVA), Interrupted("fenced"), ends(1.0)])
    it, _ = job(clock, run)
    it.work()
    assert len(run.started_s) == 3

    run = FakeRun(clock, [ends(error=JAVA), Interrupted("fenced")])
    it, warned = job(clock, run)
    with pytest.raises(Interrupted, match="fenced"):
        it.work()
    assert warned[1:] == ["fenced. The job starts again where it was"] * 3


def test_what_ends_a_query_is_reported_in_a_line_and_the_run_starts_again() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(error=JAVA), ends(1.0)])
    it, warned = job(clock, run)
    it.work()
    assert len(run.started_s) == 2
    assert warned == ["[STREAM_FAILED] it went wrong. The job starts again where it was"]


def test_a_line_that_ends_with_a_question_gets_no_second_stop() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(0.1, JAVA), Unreachable("Is the broker up?"), ends(1.0)])
    it, warned = job(clock, run)
    it.work()
    assert warned[1] == "Is the broker up? The job starts again where it was"


def test_what_may_pass_is_tried_again_and_what_a_person_has_to_mend_is_not() -> None:
    clock = Clock()
    run = FakeRun(
        clock,
        [ends(failure=Interrupted("it took too long"), error=JAVA), ends(failure=PipelineError("no"), error=JAVA)],
    )
    it, warned = job(clock, run)
    with pytest.raises(PipelineError, match="^no$"):
        it.work()
    assert warned == ["it took too long. The job starts again where it was"]


def test_pauses_between_starts_grow_and_are_bounded() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(0.1, JAVA), *[AWAY] * 8, ends()])
    it, _ = job(clock, run)
    it.work()
    gaps = [after - before for before, after in zip(run.started_s, run.started_s[1:], strict=False)]
    assert gaps[0] < gaps[2] < gaps[4] <= 10.5
    assert 9.5 <= gaps[-1] <= 10.5


def test_a_run_that_gets_nowhere_is_given_up() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(error=JAVA)])
    it, warned = job(clock, run)
    with pytest.raises(PipelineError, match=r"^\[STREAM_FAILED\] it went wrong$"):
        it.work()
    assert len(run.started_s) == 5
    assert len(warned) == 4
    assert run.calls == ["stop", "end"]


def test_a_run_that_commits_now_and_then_is_not_given_up() -> None:
    clock = Clock()
    run = FakeRun(clock, [*[ends(error=JAVA, commits=True), ends(error=JAVA)] * 10, ends()])
    it, warned = job(clock, run)
    it.work()
    assert len(warned) == 20


def test_a_topic_without_news_may_see_many_broken_queries_far_apart() -> None:
    clock = Clock()
    run = FakeRun(clock, [*[ends(600.0, JAVA)] * 10, ends()])
    it, warned = job(clock, run)
    it.work()
    assert len(warned) == 10


def test_brokers_out_of_reach_at_the_very_start_are_reported_at_once() -> None:
    clock = Clock()
    run = FakeRun(clock, [AWAY])
    it, warned = job(clock, run)
    with pytest.raises(Unreachable, match="^the brokers are away$"):
        it.work()
    assert (len(run.started_s), warned) == (1, [])


@pytest.mark.parametrize("error", [JAVA, Py4JError("no table\nat java"), OSError(28, "No space left on device")])
def test_a_first_start_that_fails_is_reported_at_once_and_in_a_line(error: Exception) -> None:
    clock = Clock()
    run = FakeRun(clock, [error])
    it, _ = job(clock, run)
    with pytest.raises(PipelineError) as failure:
        it.work()
    assert "\n" not in str(failure.value)
    assert len(run.started_s) == 1


def test_a_later_start_that_fails_is_tried_again() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(error=JAVA), Py4JError("the catalog is locked"), ends()])
    it, warned = job(clock, run)
    it.work()
    assert [text.partition(".")[0] for text in warned] == ["[STREAM_FAILED] it went wrong", "the catalog is locked"]


def test_brokers_that_went_away_are_waited_for() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(50.0, JAVA), *[AWAY] * 8, ends()])
    it, warned = job(clock, run)
    it.work()
    assert len(warned) == 9


def test_brokers_that_do_not_come_back_are_given_up_after_the_configured_time() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(5000.0, JAVA), AWAY])
    it, _ = job(clock, run, give_up_after_s=100.0)
    with pytest.raises(Unreachable):
        it.work()
    assert 100.0 < clock.now_s - 6000.0 < 115.0, "counted from when they went, not from the last commit"


def test_brokers_that_come_and_go_are_waited_for_each_time() -> None:
    clock = Clock()
    away = [AWAY] * 8
    run = FakeRun(clock, [ends(70.0, JAVA), *away, ends(70.0, JAVA), *away, ends(70.0, JAVA), *away, ends()])
    it, _ = job(clock, run, give_up_after_s=100.0)
    it.work()
    assert len(run.started_s) == 4 + 24


def test_what_a_person_must_mend_ends_the_job_at_once_and_is_raised_as_it_is() -> None:
    clock = Clock()
    failure = PipelineError("another job writes the table")
    other = FakeRun(clock, [runs_on])
    it, _ = job(clock, FakeRun(clock, [ends(error=JAVA, failure=failure)]), other)
    with pytest.raises(PipelineError) as raised:
        it.work()
    assert raised.value is failure
    assert other.calls == ["stop", "end"]


def test_a_start_that_a_person_must_mend_ends_the_job_at_once() -> None:
    clock = Clock()
    lost = PipelineError("records were lost")
    run = FakeRun(clock, [ends(error=JAVA), lost])
    it, _ = job(clock, run)
    with pytest.raises(PipelineError) as raised:
        it.work()
    assert raised.value is lost


def test_a_bug_is_no_restart() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(error=JAVA, failure=AssertionError("a bug"))])
    it, _ = job(clock, run)
    with pytest.raises(AssertionError, match="a bug"):
        it.work()
    assert run.calls == ["stop", "end"]


def test_a_stop_ends_runs_that_would_continue() -> None:
    clock = Clock()
    runs = [FakeRun(clock, [runs_on]), FakeRun(clock, [runs_on])]
    it, _ = job(clock, *runs)
    clock.after(30.0, it.request_stop)
    it.work()
    assert clock.now_s < 1031.0
    assert [run.calls for run in runs] == [["stop", "end"], ["stop", "end"]]


def test_a_stop_ends_a_job_that_waits_for_brokers() -> None:
    clock = Clock()
    run = FakeRun(clock, [ends(1.0, JAVA), AWAY])
    it, _ = job(clock, run)
    clock.after(10.0, it.request_stop)
    it.work()
    assert clock.now_s < 1012.0


def test_what_cannot_be_put_in_order_at_the_end_does_not_hide_why_it_ended() -> None:
    clock = Clock()
    runs = [FakeRun(clock, [AWAY], stop_raises=Py4JError("Java is gone")), FakeRun(clock, [runs_on])]
    it, warned = job(clock, *runs)
    with pytest.raises(Unreachable):
        it.work()
    assert warned == ["not all was put in order at the end: Java is gone"]
    assert [run.calls for run in runs] == [["stop", "end"], ["stop", "end"]]


def test_a_signal_requests_a_stop_and_the_second_one_has_its_usual_effect() -> None:
    clock = Clock()
    it, _ = job(clock)
    heard: list[Any] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with stopping_on_signals(it):
            signal.raise_signal(signal.SIGTERM)
            assert it.stop_requested.is_set()
            assert heard == []
            signal.raise_signal(signal.SIGTERM)
            assert heard == [signal.SIGTERM]
        signal.raise_signal(signal.SIGTERM)
        assert len(heard) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
