"""Our batches before Kafka's own classes, and theirs before us."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from kwire_protocol.records import (
    ControlType,
    InvalidBatch,
    Record,
    build_batch,
    build_control_batch,
    build_end_transaction_batch,
    check_batch,
    iter_records,
    read_control_type,
    read_coordinator_epoch,
    read_header,
)

from testkit.messages.record_strategies import numbered, patched, with_crc
from testkit.messages.records_judge import Judge, record_texts, running_judge


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with running_judge() as judge:
        yield judge


def some_bytes(chance: random.Random, most: int) -> bytes | None:
    return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(most))


def some_records(chance: random.Random, *, least: int = 1) -> list[Record]:
    start = chance.choice([0, 1_700_000_000_000, 2**40])
    spread = chance.choice([1, 100, 2**20, 2**36])
    return [
        Record(
            0,
            max(-1, start + chance.randrange(-spread, spread)),
            some_bytes(chance, 80),
            some_bytes(chance, chance.choice([10, 300, 20_000])),
            tuple(
                ("".join(chance.choice("ab√ß😀") for _ in range(chance.randrange(9))), some_bytes(chance, 90))
                for _ in range(chance.choice([0, 0, 1, 5, 70]))
            ),
        )
        for _ in range(chance.randrange(least, 40))
    ]


def described(batch: bytes) -> tuple[list[int], list[Record]]:
    """Returns what `Judge.read` returns for a batch, by our own reading."""
    header = read_header(batch)
    horizon = header.delete_horizon_ms
    fields = [
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.last_sequence,
        header.compression,
        header.timestamp_type,
        int(header.is_transactional),
        int(header.is_control),
        -1 if horizon is None else horizon,
    ]
    return fields, list(iter_records(batch))


@pytest.mark.parametrize("seed", range(60))
def test_a_batch_built_here_is_kafkas_byte_for_byte_and_compressed_ones_read_the_same(judge: Judge, seed: int) -> None:
    chance = random.Random(seed)
    records = some_records(chance)
    base_offset = chance.choice([0, 7, 2**40])
    producer_id, epoch, sequence = chance.choice([(-1, -1, -1), (9, 3, 0), (2**50, 2**15 - 1, 2**31 - 3)])
    transactional = producer_id >= 0 and chance.random() < 0.5
    timestamp_type = chance.randrange(2)
    append_time = 1_700_000_000_123 if timestamp_type else -1
    leader_epoch = chance.choice([-1, 0, 12])
    horizon = chance.choice([-1, -1, 1_700_000_000_000])
    for codec in range(5):
        theirs = judge.batch(
            "build",
            codec,
            timestamp_type,
            append_time,
            producer_id,
            epoch,
            sequence,
            transactional,
            False,
            base_offset,
            leader_epoch,
            horizon,
            *record_texts(numbered(records, base_offset)),
        )
        ours = build_batch(
            records,
            base_offset=base_offset,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            leader_epoch=leader_epoch,
            transactional=transactional,
            timestamp_type=timestamp_type,
            log_append_time=append_time if timestamp_type else None,
            delete_horizon_ms=None if horizon < 0 else horizon,
        )
        if codec == 0:
            assert ours == theirs
        check_batch(theirs, read_header(theirs))
        assert described(theirs) == described(ours)
        assert judge.read(ours) == described(ours)


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_kafka_reads_every_level_of_compression(judge: Judge, codec: int) -> None:
    records = some_records(random.Random(codec), least=30)
    for level in (1, 3, 6, 9):
        batch = build_batch(records, compression=codec, compression_level=level)
        assert judge.read(batch) == described(batch)


def test_kafka_and_we_agree_on_each_spoilt_byte(judge: Judge) -> None:
    batch = build_batch(
        [Record(0, 1000, b"k", b"v", (("h", b"1"), ("i", None))), Record(0, 900, None, b"w" * 70)], base_offset=5
    )
    chance = random.Random(7)
    for position in range(17, len(batch)):
        spoilt = patched(batch, position, "B", chance.randrange(256), crc=False)
        if spoilt != batch:
            assert judge.read(bytes(spoilt)) is None
            with pytest.raises(InvalidBatch):
                check_batch(spoilt, read_header(spoilt))
    refused = 0
    for position in range(61, len(batch)):
        for byte in (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)):
            spoilt = patched(batch, position, "B", byte)
            theirs = judge.read(bytes(spoilt))
            try:
                ours = described(bytes(spoilt))
            except InvalidBatch:
                refused += 1
                assert theirs is None, position
            else:
                # Kafka replaces what is no UTF-8 in a header's name, where we keep it.
                names = [name for record in ours[1] for name, _ in record.headers]
                assert theirs == ours or any("\udc80" <= letter <= "\udcff" for letter in "".join(names)), position
    assert refused > 60


def test_a_batch_that_compaction_emptied_is_kafkas(judge: Judge) -> None:
    theirs = judge.batch("empty", 3, 1, 0, 5, 9, 2, 0, 77, False, False)
    ours = bytearray(
        build_batch(
            [], base_offset=5, last_offset_delta=4, leader_epoch=2, producer_id=3, producer_epoch=1, base_sequence=0
        )
    )
    assert with_crc(patched(ours, 35, "q", 77)) == theirs  # an emptied batch keeps the max timestamp it had
    assert judge.read(theirs) == ([5, 9, 77, 4, 0, 0, 0, 0, -1], [])


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_is_kafkas(judge: Judge, commit: bool) -> None:
    theirs = judge.batch("end", "COMMIT" if commit else "ABORT", 10, 55, 2, 7, 1, 9)
    ours = build_end_transaction_batch(
        commit=commit,
        producer_id=7,
        producer_epoch=1,
        coordinator_epoch=9,
        timestamp_ms=55,
        base_offset=10,
        leader_epoch=2,
    )
    assert ours == theirs
    (record,) = iter_records(theirs)
    assert read_control_type(record.key) == (ControlType.COMMIT if commit else ControlType.ABORT)
    assert read_coordinator_epoch(record.value) == 9


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("leader", 3, 55, 4, 1), ControlType.LEADER_CHANGE),
        (("header", 3, 55, 4, 77), ControlType.SNAPSHOT_HEADER),
        (("footer", 3, 55, 4), ControlType.SNAPSHOT_FOOTER),
    ],
)
def test_control_batches_of_a_raft_log_are_kafkas(judge: Judge, words: tuple[object, ...], kind: ControlType) -> None:
    theirs = judge.batch(*words)
    (record,) = iter_records(theirs)
    assert read_control_type(record.key) == kind
    assert record.value is not None
    assert build_control_batch(kind, record.value, timestamp_ms=55, base_offset=3, leader_epoch=4) == theirs
