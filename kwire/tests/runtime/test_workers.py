"""The objects that worker threads may touch, and that tests notice a thread that touches more."""

from __future__ import annotations

import errno
import gc
from pathlib import Path

import pytest
import trio
from kwire_storage.config import LogConfig
from kwire_storage.disk.files import RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.disk.ownership import SoleUse
from kwire_storage.errors import OwnershipError, StorageError
from kwire_storage.log.log import Log

from kwire.runtime import workers
from kwire.runtime.workers import DUTIES, Worker
from testkit.basics import ownership_guard
from testkit.storage.descriptors import descriptors_of


def open_log(path: str) -> Log:
    return Log.open(MemoryDisk(), path, LogConfig(), now_ms=0, clean_shutdown=True)


def test_every_kind_of_worker_has_a_duty_and_every_call_it_lists_exists() -> None:
    assert set(DUTIES) == set(Worker)
    owned = {it.__name__: it for it in ownership_guard.OWNED}
    for duty in DUTIES.values():
        for call in duty.calls:
            owner, _, name = call.partition(".")
            assert name == "*" or hasattr(owned[owner], name), call


def test_a_worker_that_calls_what_belongs_to_the_event_loop_gets_an_error() -> None:
    log = open_log("t-0")
    log.roll(0)
    with pytest.raises(OwnershipError, match="the flush worker called Log.roll, which belongs to the event loop"):
        trio.run(workers.run, Worker.FLUSH, log.roll, 0)
    assert workers.current() is None


def test_a_mover_may_use_the_log_of_its_copy_and_no_other() -> None:
    trio.run(workers.run, Worker.MOVE, open_log(f"t-0.{bytes(16).hex()}-future").roll, 0)
    with pytest.raises(OwnershipError, match="the move worker called Log.roll"):
        trio.run(workers.run, Worker.MOVE, open_log("t-0").roll, 0)


def test_a_turn_is_one_threads_at_a_time() -> None:
    turn = SoleUse("the copy")
    with turn, pytest.raises(OwnershipError, match="the copy is in use by another thread"), turn:
        pass
    with turn:
        pass


def test_what_a_worker_that_failed_had_open_is_closed_without_the_garbage_collector(tmp_path: Path) -> None:
    def work() -> None:
        file = RealDisk(tmp_path).open_append("records")
        assert descriptors_of(tmp_path) == 1
        file.append(bytes(10))
        raise StorageError(errno.ENOSPC, "the disk is full", "records")

    async def main() -> None:
        with pytest.raises(StorageError):
            await workers.run(Worker.MOVE, work)

    gc.disable()
    try:
        trio.run(main)
        assert descriptors_of(tmp_path) == 0
    finally:
        gc.enable()
