"""Threads and memory that run out in workers: work waits for a thread that is free, and an error passes."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.list_transactions import ListTransactionsRequest
from kwire_storage.errors import is_passing

from kwire.runtime import workers
from kwire.runtime.workers import CORE_THREADS, Threads, Worker
from kwire.testing import Broker
from testkit.raw.client import RawClient
from testkit.raw.simple_requests import produce

WAIT_S = 30.0


class System:
    """A system that starts a limited number of threads."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.started = 0

    def start(self, serve: Callable[[], None]) -> None:
        if self.started >= self.most:
            raise RuntimeError("can't start new thread")
        self.started += 1
        threading.Thread(target=serve, daemon=True).start()


def creation_of(topic: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(topic, 1, 1)], 10_000)


def test_work_waits_for_a_thread_that_is_free_where_no_more_can_be_started(caplog: pytest.LogCaptureFixture) -> None:
    system = System(2)
    threads = Threads(system.start)
    may_continue, done = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        assert may_continue.wait(WAIT_S)
        done.release()

    for _ in range(10):
        threads.do(work)
    assert system.started == 2
    may_continue.set()
    for _ in range(10):
        assert done.acquire(timeout=WAIT_S)
    assert caplog.messages == ["no more than 2 worker threads can be started, and work waits for them"]


def test_threads_that_can_be_started_again_are_started() -> None:
    system = System(1)
    threads = Threads(system.start)
    may_continue = threading.Event()
    for _ in range(2):
        threads.do(lambda: may_continue.wait(WAIT_S))
    assert system.started == 1
    system.most = 2
    threads.do(lambda: may_continue.wait(WAIT_S))
    assert system.started == 2
    may_continue.set()


def test_without_any_thread_work_is_refused_with_an_error_that_passes() -> None:
    threads = Threads(System(0).start)
    refusals: list[Callable[[], None]] = [lambda: threads.do(lambda: None), lambda: threads.keep(2)]
    for refused in refusals:
        with pytest.raises(OSError, match="no worker thread can be started") as raised:
            refused()
        assert raised.value.errno == errno.EAGAIN
        assert is_passing(raised.value)


def test_threads_are_kept_before_they_are_needed() -> None:
    system = System(CORE_THREADS)
    threads = Threads(system.start)
    threads.keep(CORE_THREADS)
    assert system.started == CORE_THREADS
    together = threading.Barrier(CORE_THREADS + 1)
    for _ in range(CORE_THREADS):
        threads.do(lambda: together.wait(WAIT_S))
    together.wait(WAIT_S)


def test_all_work_is_done_once_however_many_hand_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "IDLE_S", 0.001)  # threads end all the time
    threads = Threads(System(10**6).start)
    limited = Threads(System(3).start)
    counts, lock = [0, 0], threading.Lock()
    done = threading.Semaphore(0)

    def work(which: int) -> None:
        with lock:
            counts[which] += 1
        done.release()

    def hand_over() -> None:
        for _ in range(300):
            threads.do(lambda: work(0))
            limited.do(lambda: work(1))

    callers = [threading.Thread(target=hand_over) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for _ in range(2 * 4 * 300):
        assert done.acquire(timeout=WAIT_S)
    assert counts == [1200, 1200]


def test_memory_that_runs_out_in_a_worker_is_an_error_that_passes() -> None:
    def work() -> None:
        raise MemoryError

    with pytest.raises(OSError, match="no memory") as raised:
        trio.run(workers.run, Worker.FLUSH, work)
    assert is_passing(raised.value)


@pytest.mark.parametrize("most", [1, 3])
def test_tasks_side_by_side_end_with_the_first_error(most: int) -> None:
    begun: list[int] = []

    def task(number: int) -> None:
        begun.append(number)
        if number == 4:
            raise OSError(errno.EIO, "broken")

    tasks = [lambda number=number: task(number) for number in range(10)]
    with pytest.raises(OSError, match="broken"):
        list(workers.side_by_side(Worker.STOP, tasks, most))
    assert set(range(5)) <= set(begun)
    assert len(begun) <= 4 + most


def test_a_broker_serves_where_no_thread_can_be_started_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with (
        Broker(on_disk=True, settings={"log.flush.interval.messages": "1"}) as broker,
        RawClient(broker.address) as client,
    ):
        assert client.call(ListTransactionsRequest(), 1).error_code == ErrorCode.NONE
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", refuse)
            for number in range(20):
                topic = f"topic-{number}"
                assert client.call(creation_of(topic), 7).topics[0].error_code == ErrorCode.NONE
                assert (
                    client.call(produce(b"value", topic=topic), 9).responses[0].partition_responses[0].error_code == 0
                )
                deletion = DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=10_000)
                assert client.call(deletion, 6).responses[0].error_code == ErrorCode.NONE
        assert client.call(creation_of("later"), 7).topics[0].error_code == ErrorCode.NONE
