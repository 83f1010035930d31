"""A follower's append of several batches at once gives the same bytes as batch by batch."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs
import pytest
from kwire_protocol.control_records import build_end_transaction_batch
from kwire_protocol.records import Record, build_batch
from kwire_storage.config import LogConfig
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import StorageError
from kwire_storage.log.log import Log

from testkit.storage.logs import open_log
from testkit.storage.small_disk import SmallDisk

CONFIGS = [
    LogConfig(segment_bytes=1500, index_interval_bytes=200, segment_ms=50, segment_jitter_ms=20),
    LogConfig(segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=60),
    LogConfig(segment_bytes=4000, index_interval_bytes=100),
    LogConfig(),
]


@attrs.frozen
class Sent:
    """A batch of the leader: `gap` offsets after the one before, in an epoch `newer` than that."""

    records: int
    size: int
    timestamp_ms: int
    gap: int = 0
    newer: int = 0
    producer_id: int = -1
    ends: bool | None = None
    """A marker, which commits or aborts."""


def drawn(seed: int) -> tuple[list[Sent], list[int]]:
    """Draws batches, and how many of them come together each time."""
    chance = random.Random(seed)
    late_ms = chance.choice([0, 20, 100])
    batches = [
        Sent(
            chance.randint(1, 5),
            chance.randint(0, chance.choice([10, 300])),
            chance.choice([-1, number + chance.randint(0, late_ms)]) if seed % 3 == 0 else number,
            gap=chance.choice([0, 0, 0, 1, 40]),
            newer=chance.choice([0] * 9 + [1, 3]),
            producer_id=chance.choice([-1, -1, 1, 2]),
            ends=chance.choice([None] * 9 + [True, False]),
        )
        for number in range(chance.choice([5, 60]))
    ]
    return batches, [chance.randint(1, chance.choice([3, 40])) for _ in range(10)]


def encoded(batches: Sequence[Sent]) -> list[bytes]:
    found, offset, epoch = [], 0, 0
    sequences = {-1: -1, 1: 0, 2: 0}
    for it in batches:
        offset += it.gap
        epoch += it.newer
        if it.ends is not None and it.producer_id >= 0:
            count = 1
            data = build_end_transaction_batch(
                commit=it.ends,
                producer_id=it.producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=it.timestamp_ms,
                base_offset=offset,
                leader_epoch=epoch,
            )
        else:
            count = it.records
            data = build_batch(
                [Record(timestamp=it.timestamp_ms, value=b"v" * it.size) for _ in range(count)],
                base_offset=offset,
                leader_epoch=epoch,
                producer_id=it.producer_id,
                producer_epoch=0 if it.producer_id >= 0 else -1,
                base_sequence=sequences[it.producer_id],
                transactional=it.producer_id >= 0,
            )
            if it.producer_id >= 0:
                sequences[it.producer_id] += count
        found.append(bytes(data))
        offset += count
    return found


def files(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: disk.read_bytes(f"orders-0/{name}") for name in disk.listdir("orders-0")}


def producers(log: Log) -> list[object]:
    return [attrs.astuple(it, recurse=False) for it in log.producers.entries.values()]


def in_memory(log: Log) -> list[object]:
    return [
        (it.base_offset, it.size, it.bytes_since_index, it.largest_timestamp, it.index.to_bytes(), it.rolling_timestamp)
        for it in log.segments
    ]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(40))
def test_several_batches_at_once_are_as_one_by_one(config: LogConfig, seed: int) -> None:
    batches, together = drawn(seed)
    data = encoded(batches)
    one_by_one, at_once = MemoryDisk(), MemoryDisk()
    log, other = open_log(one_by_one, config), open_log(at_once, config)
    number = turn = 0
    while number < len(data):
        some = data[number : number + together[turn % len(together)]]
        for it in some:
            log.append_as_is(it, now_ms=turn)
        other.append_as_is(b"".join(some), now_ms=turn)
        number, turn = number + len(some), turn + 1
        assert in_memory(other) == in_memory(log)
    assert other.log_end_offset == log.log_end_offset
    assert other.leader_epochs.entries == log.leader_epochs.entries
    assert producers(other) == producers(log)
    for offset in range(log.log_end_offset + 1):
        pieces = [it.read(offset, max_bytes=500, max_offset=it.log_end_offset) for it in (log, other)]
        assert pieces[0].read() == pieces[1].read()
    log.close()
    other.close()
    assert files(at_once) == files(one_by_one)


def test_batches_that_fit_are_one_write() -> None:
    disk = MemoryDisk()
    writes: list[tuple[str, str]] = []
    log = open_log(disk, LogConfig())
    log.append_as_is(b"".join(encoded([Sent(1, 10, 5)] * 2)))
    disk.operation = lambda name, path: writes.append((name, path))  # type: ignore[method-assign]
    rest = encoded([Sent(1, 10, 5)] * 102)[2:]
    log.append_as_is(b"".join(rest))
    assert [name for name, path in writes if path == log.active.records_path] == ["append"]
    assert len(writes) == 3  # beside it one for each sparse index
    assert log.log_end_offset == 102


def test_of_what_a_full_disk_refuses_nothing_or_whole_batches_are_appended() -> None:
    for room in range(0, 5000, 97):
        disk = SmallDisk(room)
        log = open_log(disk, LogConfig(segment_bytes=2000))
        data = encoded([Sent(1, 100, 5)] * 30)
        with pytest.raises(StorageError):
            log.append_as_is(b"".join(data))
        end = log.log_end_offset
        stored = b"".join(piece.read() for _, piece in log.batches())
        assert stored == b"".join(data[:end])
        disk.capacity_bytes = 1 << 20
        log.append_as_is(b"".join(data[end:]))
        assert b"".join(piece.read() for _, piece in log.batches()) == b"".join(data)


def test_a_batch_that_is_larger_than_a_segment_may_be_is_taken_since_the_leader_has_it() -> None:
    log = open_log(MemoryDisk(), LogConfig(segment_bytes=500))
    data = encoded([Sent(1, 10, 5), Sent(1, 1000, 5), Sent(1, 10, 5)])
    log.append_as_is(b"".join(data))
    assert log.segments.bases == [0, 1, 2]


def test_offsets_that_are_too_far_from_a_segments_first_begin_another() -> None:
    log = open_log(MemoryDisk(), LogConfig())
    log.append_as_is(b"".join(encoded([Sent(1, 10, 5), Sent(1, 10, 5)])))
    log.append_as_is(b"".join(encoded([Sent(1, 10, 5, gap=2), Sent(1, 10, 5, gap=2**31 - 3)])))
    assert log.segments.bases == [0, 3]
