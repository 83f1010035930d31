"""The remains of a batch, beside the rules record by record; also where a producer's offsets are nonsense."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.records import Record, build_batch, iter_records, read_header
from kwire_storage.compaction.cleaning import Cleaning, LastRecord, Transactions, note_keys
from kwire_storage.compaction.offset_map import BYTES_OF_AN_ENTRY, OffsetMap
from kwire_storage.compaction.writing import Plan, Source, Written
from kwire_storage.producers.txn_index import AbortedTxn

from devtools.suite.tiers import examples

NOW_MS = 1000
RETENTION_MS = 50
LONG = b"long" * 30

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", LONG, LONG + b"x", None])
VALUES = st.sampled_from([b"1", b"22", None])


@attrs.frozen
class Batch:
    data: memoryview
    records: list[Record]
    last_offset: int
    delete_horizon_ms: int | None


@st.composite
def logs(draw: st.DrawFn, *, lawful: bool) -> list[Batch]:
    """Draws batches with holes between their records, as compaction leaves them, with lawless offsets anywhere near."""
    batches: list[Batch] = []
    base_offset = 0
    for _ in range(draw(st.integers(1, 8))):
        offset = base_offset
        records = []
        shift = 0 if lawful else draw(st.sampled_from([0, 0, -2, 3]))
        for _ in range(draw(st.integers(1, 6))):
            offset += draw(st.sampled_from([0, 0, 0, 1, 3]))
            at = offset if lawful else max(offset + shift + draw(st.sampled_from([0] * 20 + [-4, -1, 1, 7])), 0)
            records.append(Record(at, draw(st.integers(0, 99)), draw(KEYS), draw(VALUES)))
            offset += 1
        end_offset = offset + draw(st.sampled_from([0, 0, 2]))
        horizon_ms = draw(st.sampled_from([None, None, NOW_MS - 1, NOW_MS + 1]))
        data = build_batch(
            records,
            base_offset=base_offset,
            keep_offsets=True,
            last_offset_delta=end_offset - 1 - base_offset,
            delete_horizon_ms=horizon_ms,
            compression=draw(st.sampled_from([0, 0, 1, 4])),
        )
        batches.append(Batch(memoryview(data), records, end_offset - 1, horizon_ms))
        base_offset = end_offset + draw(st.sampled_from([0, 0, 4]))
        if not lawful and draw(st.integers(0, 9)) == 0:
            base_offset = end_offset - 1
    return batches


def read_keys(batches: Sequence[Batch], start_offset: int, room: int) -> OffsetMap:
    keys = OffsetMap(room * BYTES_OF_AN_ENTRY, start_offset)
    transactions = Transactions(())
    for batch in batches:
        header = read_header(batch.data)
        if header.next_offset > start_offset and not note_keys(keys, transactions, batch.data, header):
            break
    keys.close()
    return keys


def read_keys_plainly(batches: Sequence[Batch], start_offset: int, room: int) -> dict[bytes, int]:
    latest: dict[bytes, int] = {}
    for batch in batches:
        if batch.last_offset < start_offset:
            continue
        for record in batch.records:
            if record.offset >= start_offset and record.key is not None:
                if len(latest) == room and record.key not in latest:
                    return latest
                latest[record.key] = record.offset
    return latest


def check(batches: list[Batch], start_offset: int, room: int, *, may_grow: bool) -> None:
    keys = read_keys(batches, start_offset, room)
    latest = read_keys_plainly(batches, start_offset, room)
    cleaning = Cleaning(keys, Transactions(()), {}, start_offset, NOW_MS, RETENTION_MS)
    for batch in batches:
        horizon_ms = batch.delete_horizon_ms
        kept = []
        for record in batch.records:
            is_expired = record.value is None and horizon_ms is not None and horizon_ms <= NOW_MS
            if record.offset >= keys.end_offset or (
                record.key is not None
                and record.offset >= latest.get(record.key, -1)
                and not (is_expired and record.offset < start_offset)
            ):
                kept.append(record)
        header = read_header(batch.data)
        found = cleaning.clean(batch.data, header, may_grow=may_grow)
        if not kept:
            assert found is None or (header.next_offset == keys.end_offset and not read_header(found).records_count)
            continue
        assert found is not None
        assert list(iter_records(found)) == kept
        now = read_header(found)
        assert (now.base_offset, now.last_offset) == (header.base_offset, header.last_offset)
        if horizon_ms is None and may_grow and any(record.value is None for record in kept):
            horizon_ms = NOW_MS + RETENTION_MS
        assert now.delete_horizon_ms == horizon_ms
        if kept == batch.records and horizon_ms == batch.delete_horizon_ms:
            assert found is batch.data


@given(logs(lawful=True), st.integers(0, 30), st.integers(1, 9), st.booleans())
@settings(max_examples=examples(100))
def test_of_each_batch_stay_the_records_that_the_rules_name(
    batches: list[Batch], start_offset: int, room: int, may_grow: bool
) -> None:
    check(batches, start_offset, room, may_grow=may_grow)


@given(logs(lawful=False), st.integers(0, 30), st.integers(1, 9))
@settings(max_examples=examples(100))
def test_offsets_that_do_not_rise_are_compared_key_by_key(batches: list[Batch], start_offset: int, room: int) -> None:
    check(batches, start_offset, room, may_grow=True)


def test_a_plan_and_what_was_written_come_back_from_json() -> None:
    plan = Plan(
        folder="orders-0",
        sources=(Source(0, 10, 700, 1000), Source(10, 2**40, 800, 2000)),
        aborted=(AbortedTxn(7, 1, 5, 6), "00000000000000000010.txnindex"),
        first_dirty_offset=10,
        end_offset=2**40,
        last_records={7: LastRecord(3, 9), 8: LastRecord(0, None)},
        now_ms=NOW_MS,
        delete_retention_ms=RETENTION_MS,
        map_bytes=1 << 27,
        segment_bytes=1 << 30,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
    )
    assert Plan.from_fields(json.loads(json.dumps(plan.to_fields()))) == plan
    written = Written(end_offset=12, group_sizes=(1, 2), read_bytes=3, written_bytes=4)
    assert Written.from_fields(json.loads(json.dumps(written.to_fields()))) == written
