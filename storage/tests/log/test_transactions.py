"""Transactions in the log: the first open one, the aborted ones, and where they are stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwire_protocol.records import InvalidBatch, Record, build_batch
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError
from kwire_storage.log.log import Log, LogConfig
from kwire_storage.producers.txn_index import AbortedTxn, decode_aborted, encode_aborted

from testkit.storage.disks import both_disks, make_disk
from testkit.storage.logs import append, append_bytes, end_transaction, open_log

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


def send(log: Log, producer_id: int, sequence: int, count: int = 2) -> int:
    return append(log, count, producer_id=producer_id, sequence=sequence, transactional=True).base_offset


@both_disks
@pytest.mark.parametrize("reopen", ["no", "clean", "crash"])
def test_readers_learn_of_the_aborted_transactions_that_touch_what_they_read(
    kind: str, reopen: str, tmp_path: Path
) -> None:
    log = open_log(make_disk(kind, tmp_path), CONFIG)
    send(log, 1, 0)  # 0-1
    send(log, 2, 0)  # 2-3
    end_transaction(log, 1, commit=False)  # 4
    send(log, 1, 2)  # 5-6
    end_transaction(log, 2, commit=False)  # 7
    log.roll(0)
    end_transaction(log, 1, commit=True)  # 8
    send(log, 1, 4)  # 9-10
    end_transaction(log, 1, commit=False)  # 11
    send(log, 2, 2)  # 12-13, open
    if reopen != "no":
        log.close(clean=reopen == "clean")
        log = open_log(log.disk, CONFIG, clean=reopen == "clean")
    first = AbortedTxn(1, 0, 4, 2)
    second = AbortedTxn(2, 2, 7, 5)
    third = AbortedTxn(1, 9, 11, 12)
    assert [segment.aborted for segment in log.segments] == [[first, second], [third]]
    assert log.producers.first_undecided_offset == 12
    whole = log.read(0, max_bytes=10**6, max_offset=12)
    assert log.aborted_transactions(0, whole) == [first, second]
    assert log.aborted_transactions(5, log.read(5, max_bytes=10**6, max_offset=12)) == [second]
    assert log.aborted_transactions(8, log.read(8, max_bytes=10**6, max_offset=12)) == [third]
    assert log.aborted_transactions(14, log.read(14, max_bytes=10**6, max_offset=14)) == []


def test_a_transaction_may_end_segments_after_it_began() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    send(log, 1, 0)
    for number in range(20):
        send(log, 2, number * 2)
    end_transaction(log, 1, commit=False)
    assert len(log.segments) > 3
    assert [aborted[:3] for aborted in log.aborted_transactions(0, log.read(0, max_bytes=1, max_offset=99))] == [
        (1, 0, 42)
    ]


def test_a_marker_moves_the_first_open_offset_on() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    send(log, 1, 0)
    send(log, 2, 0)
    assert log.producers.first_undecided_offset == 0
    end_transaction(log, 1, commit=True)
    assert log.producers.first_undecided_offset == 2
    assert log.producers.first_unstable_offset(high_watermark=4) == 0
    assert log.producers.first_unstable_offset(high_watermark=5) == 2


def test_the_index_of_aborted_transactions_is_of_34_byte_entries() -> None:
    entries = [AbortedTxn(1, 2, 3, 4), AbortedTxn(5, 6, 7, 8)]
    data = encode_aborted(entries)
    assert data[:34] == bytes.fromhex("0000 0000000000000001 0000000000000002 0000000000000003 0000000000000004")
    assert decode_aborted(data) == entries
    for wrong in (data[:-1], b"\0\1" + data[2:]):
        with pytest.raises(CorruptLogError):
            decode_aborted(wrong)


def test_a_control_batch_that_is_no_marker_is_refused_before_it_is_written() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    nonsense = build_batch([Record(0, 0, b"?", b"?")], producer_id=1, producer_epoch=0, base_sequence=-1, control=True)
    with pytest.raises(InvalidBatch):
        append_bytes(log, nonsense)
    assert log.log_end_offset == 0


def test_control_batches_of_other_kinds_add_no_producers() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    leader_change = build_batch(
        [Record(0, 0, bytes([0, 0, 0, 2]), b"?")], producer_id=1, producer_epoch=0, control=True
    )
    append_bytes(log, leader_change)
    assert log.producers.entries == {}
    assert log.log_end_offset == 1
