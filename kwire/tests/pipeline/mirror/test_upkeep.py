"""The upkeep of a mirror: its schedule, and what two threads hand to each other."""

from __future__ import annotations

import threading

import attrs
import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.handover import Handover, Latest
from kwire.pipeline.mirror.topics import TargetTopics
from kwire.pipeline.mirror.upkeep import Duties, UpkeepThread


@attrs.define(eq=False)
class Work:
    """A duty of two, on a clock that it moves: each time it takes a second, and may fail."""

    now_s: float = 100.0
    done: list[tuple[str, float]] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)
    error: str | None = None

    def duties(self) -> Duties:
        return Duties([(self.topics, 60.0), (self.groups, 10.0)], self.warnings.append, lambda: self.now_s)

    def topics(self) -> None:
        self._do("topics")

    def groups(self) -> None:
        self._do("groups")

    def _do(self, name: str) -> None:
        self.done.append((name, self.now_s))
        self.now_s += 1.0
        if self.error is not None:
            raise PipelineError(self.error)


def test_each_duty_is_due_an_interval_after_it_was_done() -> None:
    work = Work()
    duties = work.duties()
    work.now_s += 9.0
    duties.work()
    assert work.done == []
    for _ in range(7):
        work.now_s += duties.wait_s()
        duties.work()
    groups = [("groups", at_s) for at_s in (110.0, 121.0, 132.0, 143.0, 154.0)]
    assert work.done == [*groups, ("topics", 160.0), ("groups", 165.0)]
    assert duties.wait_s() == 10.0
    work.now_s += 100.0
    assert duties.wait_s() == 0.0


def test_an_error_is_reported_once_and_the_duty_is_tried_again() -> None:
    work = Work()
    duties = work.duties()

    def after(error: str | None) -> list[str]:
        work.error = error
        work.now_s += 11.0
        duties.work()
        return work.warnings

    assert after("unreachable") == ["unreachable"]
    assert after("unreachable") == ["unreachable"]
    assert after("refused") == ["unreachable", "refused"]
    assert after(None) == ["unreachable", "refused"]
    assert after("refused") == ["unreachable", "refused", "refused"]
    assert len(work.done) == 5


def test_the_thread_works_until_it_is_stopped_and_finishes_its_work() -> None:
    began, go_on, done = threading.Event(), threading.Event(), []

    def work() -> None:
        began.set()
        assert go_on.wait(10)
        done.append(True)

    thread = UpkeepThread(Duties([(work, 0.0)], lambda _: None))
    assert began.wait(10)
    threading.Thread(target=go_on.set).start()
    thread.stop()
    assert done
    times = len(done)
    thread.stop()
    assert len(done) == times


def test_a_value_is_taken_once_and_the_newest_counts() -> None:
    latest: Latest[str] = Latest()
    assert latest.take() is None
    latest.put("older")
    latest.put("newer")
    assert latest.take() == "newer"
    assert latest.take() is None


def test_a_thread_waits_until_the_other_one_gives_back_what_changes_the_targets_topics() -> None:
    handover = Handover(TargetTopics(()))
    taken: list[TargetTopics] = []

    def take() -> None:
        with handover.target_topics() as it:
            taken.append(it)

    thread = threading.Thread(target=take)
    with handover.target_topics() as mine:
        thread.start()
        thread.join(0.1)  # time enough for a thread that does not wait
        assert taken == []
    thread.join(10)
    assert taken == [mine]


def test_what_changes_the_targets_topics_comes_back_from_a_block_that_fails() -> None:
    handover = Handover(TargetTopics(()))
    with pytest.raises(PipelineError), handover.target_topics() as first:
        raise PipelineError("no")
    with handover.target_topics() as second:
        assert second is first
