"""The power fails at every operation of a trace, and the process dies at every operation; what is left must hold.

Each state is opened again and must be a prefix of what was appended, with everything that a flush had made durable,
with indexes, producers and epochs that agree with the records, and it must take appends. The folder must be usable
however often its opening is cut short in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from kwire_protocol.records import BatchHeader, iter_headers
from kwire_storage.config import LogConfig
from kwire_storage.data_folder import DataFolder
from kwire_storage.errors import StorageError
from kwire_storage.log import Log
from kwire_storage.memory_disk import MemoryDisk, TornAppendError

from storage.tests.logs import append, append_bytes, end_transaction

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=0)
TOPIC_ID = bytes(range(16))

Survives = Callable[[str, int], int]
POWER_CUTS: dict[str, Survives | None] = {
    "nothing unsynced survives": None,
    "all of it survives": lambda _path, unsynced: unsynced,
    "half of it survives": lambda _path, unsynced: unsynced // 2,
    "all but a byte survives": lambda _path, unsynced: unsynced - 1,
}


class PowerCutError(Exception):
    """Stops a trace in front of one operation."""


class Trace:
    """What a broker did to one partition, and what it may rely on after a crash."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.appended: list[tuple[int, int]] = []
        self.in_flight = 0
        self.durable_end = 0
        self.start = 0
        self.sequence = 0

    def open(self) -> DataFolder:
        folder = DataFolder.open(self.disk, cluster_id="c", node_id=1, directory_id=bytes(16))
        folder.open_all(lambda _topic: CONFIG, now_ms=0)
        return folder

    def log(self, folder: DataFolder) -> Log:
        return folder.logs.get(("t", 0)) or folder.create_log("t", 0, TOPIC_ID, CONFIG, now_ms=0)

    def append(self, log: Log, count: int, *, transactional: bool = False, epoch: int = 0) -> None:
        self.in_flight = count
        result = append(
            log, count, size=40, producer_id=1, sequence=self.sequence, transactional=transactional, leader_epoch=epoch
        )
        self.sequence += count
        self.appended.append((result.base_offset, result.last_offset))
        self.in_flight = 0

    def flush(self, folder: DataFolder, log: Log) -> None:
        end = log.log_end_offset
        log.flush()
        self.durable_end = end
        folder.write(folder.take_checkpoints({("t", 0): end}))

    def run(self) -> None:
        folder = self.open()
        log = self.log(folder)
        for number in range(8):
            self.append(log, number % 3 + 1)
            if number == 4:
                self.flush(folder, log)
        self.append(log, 2, transactional=True, epoch=1)
        self.in_flight = 1
        self.appended.append(end_transaction(log, 1, commit=False, leader_epoch=1)[:2])
        self.in_flight = 0
        self.append(log, 1, epoch=1)
        folder.close({("t", 0): log.log_end_offset})
        self.durable_end = log.log_end_offset
        folder = self.open()
        log = self.log(folder)
        self.append(log, 2, epoch=1)
        self.start = -1  # from here on the old start, the new one, or what deleting segments left may be found
        log.advance_log_start(9)
        log.apply_retention(0, log.log_end_offset)
        self.flush(folder, log)
        self.start = 9
        for _ in range(3):
            self.append(log, 3, epoch=1)
        self.flush(folder, log)
        folder.close()


def count_operations() -> int:
    disk = MemoryDisk()
    operations = 0

    def count(_operation: str, _path: str) -> None:
        nonlocal operations
        operations += 1

    disk.before_operation = count
    Trace(disk).run()
    return operations


OPERATIONS = count_operations()


def run_until(number: int) -> Trace:
    """Runs the trace up to, and without, its operation of that number."""
    disk = MemoryDisk()
    trace = Trace(disk)
    left = number

    def cut(operation: str, path: str) -> None:
        nonlocal left
        if left == 0:
            if operation == "append" and path.endswith(".log") and number % 2:
                raise TornAppendError(50)
            raise PowerCutError
        left -= 1

    disk.before_operation = cut
    with suppress(PowerCutError, StorageError):
        trace.run()
    disk.before_operation = None
    return trace


def check(trace: Trace, disk: MemoryDisk, *, lost: bool) -> None:
    """Opens what is left and holds it against the trace."""
    trace_of_it = Trace(disk)
    folder = trace_of_it.open()
    if ("t", 0) not in folder.logs:
        assert trace.durable_end == 0
        folder.close()
        return
    log = folder.logs["t", 0]
    end, start = log.log_end_offset, log.log_start_offset
    expected = [base for base, _ in trace.appended if base < end]
    if trace.in_flight and end not in {last + 1 for _, last in trace.appended} | {0}:
        # The append that was under way may have become whole.
        expected = [base for base, _ in trace.appended]
        expected.append(trace.appended[-1][1] + 1 if trace.appended else 0)
        assert end == expected[-1] + trace.in_flight
    assert end >= trace.durable_end
    if not lost:
        assert end >= (trace.appended[-1][1] + 1 if trace.appended else 0)
    assert start in ({0, 7, 9} if trace.start < 0 else {trace.start})
    headers = contents(log)
    assert [header.base_offset for header in headers] == [
        base for base in expected if base >= min_base(expected, start)
    ]
    check_derived(log, headers)
    append(log, 2, producer_id=2, sequence=0, leader_epoch=5)
    assert log.log_end_offset == end + 2
    folder.close()
    folder = Trace(disk).open()
    assert folder.logs["t", 0].log_end_offset == end + 2
    check_derived(folder.logs["t", 0], contents(folder.logs["t", 0]))
    folder.close()


def min_base(expected: list[int], start: int) -> int:
    return max((base for base in expected if base <= start), default=0)


def contents(log: Log) -> list[BatchHeader]:
    headers: list[BatchHeader] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes=300, max_offset=log.log_end_offset)
        assert piece.size
        headers += [header for _, header in iter_headers(piece.read())]
        offset = headers[-1].next_offset
    return headers


def check_derived(log: Log, headers: list[BatchHeader]) -> None:
    """Indexes, epochs and producers are what the records say."""
    for header in headers:
        if header.base_offset >= log.log_start_offset:
            found = log.read(header.last_offset, max_bytes=0, max_offset=log.log_end_offset)
            assert found.base_offset == header.base_offset
            # The epochs' file may know of a log start that the crash undid.
            if header.base_offset >= log.leader_epochs.entries[0][1]:
                assert log.leader_epochs.epoch_at(header.base_offset) == header.partition_leader_epoch
    mine = [header for header in headers if header.producer_id == 1 and not header.is_control]
    if mine:
        assert log.producers.entries[1].last_sequence == mine[-1].last_sequence
        expected = [header for header in headers if header.is_control]
        aborted = log.aborted_transactions(
            0, log.read(log.log_start_offset, max_bytes=1, max_offset=log.log_end_offset)
        )
        assert len(aborted) <= 1
        open_since = mine[-1].base_offset if mine[-1].is_transactional and not expected else None
        assert log.producers.first_undecided_offset == open_since
    indexed = [aborted for segment in log.segments for aborted in segment.aborted]
    assert len(indexed) == sum(header.is_control for header in headers) or headers[0].base_offset > 0
    assert len(set(indexed)) == len(indexed)


@pytest.mark.parametrize("kind", POWER_CUTS)
def test_the_power_fails_at_every_operation(kind: str) -> None:
    for number in range(OPERATIONS + 1):
        trace = run_until(number)
        check(trace, trace.disk.crash(POWER_CUTS[kind]), lost=True)


def test_the_process_dies_at_every_operation() -> None:
    for number in range(OPERATIONS + 1):
        trace = run_until(number)
        check(trace, trace.disk.kill(), lost=False)


def test_the_power_fails_again_at_every_operation_of_the_recovery() -> None:
    for number in range(0, OPERATIONS, 7):
        trace = run_until(number)
        for again in range(60):
            disk = trace.disk.crash(POWER_CUTS["half of it survives"])
            left = again

            def cut(_operation: str, _path: str) -> None:
                nonlocal left
                if left == 0:
                    raise PowerCutError
                left -= 1

            disk.before_operation = cut
            try:
                Trace(disk).open()
            except PowerCutError:
                disk.before_operation = None
                check(trace, disk.crash(), lost=True)
            else:
                break


def test_an_append_under_way_is_all_or_nothing_for_readers() -> None:
    disk = MemoryDisk()
    folder = Trace(disk).open()
    log = folder.create_log("t", 0, TOPIC_ID, CONFIG, now_ms=0)
    append(log, 1)

    def tear(operation: str, _path: str) -> None:
        if operation == "append":
            raise TornAppendError(30)

    disk.before_operation = tear
    with pytest.raises(StorageError):
        append_bytes(log, log.read(0, max_bytes=1, max_offset=1).read())
    assert len(contents(log)) == 1
    check_derived(log, contents(log))
