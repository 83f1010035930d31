"""Random histories and random cleanings against the promises to a reader, whatever was cleaned and however often.

* An offset shows the same record for ever, or nothing.
* Of each key the last record that was committed stays, unless it is a tombstone, and then nothing older of the key
  comes back.
* A reader of committed records who begins at the start ends up with the same table, and never sees an aborted one.
* Producers continue where they were, also when all their state has to be read from the log again, and when what
  they sent was deleted in the middle of a cleaning.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.records import BatchHeader, Record, iter_headers, iter_records
from kwire_storage.compaction import planning as compaction
from kwire_storage.compaction.offset_map import BYTES_OF_AN_ENTRY
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.log.log import Log

from devtools.suite.tiers import examples
from testkit.storage.compacting import COMPACTED, exchange, put, table
from testkit.storage.logs import end_transaction, open_log, read_all

CONFIG = attrs.evolve(COMPACTED, segment_bytes=700, producer_id_expiration_ms=10**9)
PLAIN, IDEMPOTENT, TRANSACTIONAL, TRANSACTIONAL_TOO = -1, 1, 2, 3

Row = tuple[int, str, str | None]


@attrs.define
class History:
    """A log, and what was done to it."""

    seed: int
    log: Log = attrs.field(factory=lambda: open_log(FaultyDisk(), CONFIG))
    random: random.Random = attrs.field(init=False)
    shown: dict[int, tuple[object, ...]] = attrs.field(factory=dict)
    """Every record that was ever written, by its offset."""
    committed: list[Row] = attrs.field(factory=list)
    undecided: dict[int, list[Row]] = attrs.field(factory=dict)
    sequences: dict[int, int] = attrs.field(factory=dict)
    most_cleaned: int = 0
    recovery_point: int = 0
    """The value in its file, which moves only where a cleaning requires it."""
    log_start_offset: int = 0
    """The value in its file."""
    now_ms: int = 1000

    def __attrs_post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def write(self) -> None:
        rnd = self.random
        pairs = [
            (f"k{rnd.randrange(10)}", None if rnd.random() < 0.25 else f"{self.now_ms}-{number}")
            for number in range(rnd.randrange(1, 5))
        ]
        producer_id = rnd.choice((PLAIN, IDEMPOTENT, TRANSACTIONAL, TRANSACTIONAL_TOO))
        sequence = self.sequences.get(producer_id, 0)
        base = put(
            self.log,
            *pairs,
            timestamp_ms=self.now_ms,
            producer_id=producer_id,
            sequence=sequence if producer_id >= 0 else -1,
            transactional=producer_id >= TRANSACTIONAL,
            compression=rnd.randrange(5),
        ).base_offset
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(pairs)
        rows = [(base + number, key, value) for number, (key, value) in enumerate(pairs)]
        self.shown |= {offset: (key, value, self.now_ms) for offset, key, value in rows}
        if producer_id >= TRANSACTIONAL:
            self.undecided.setdefault(producer_id, []).extend(rows)
        else:
            self.committed += rows

    def decide(self) -> None:
        """Ends a transaction, if one is open."""
        if self.undecided:
            producer_id = self.random.choice(list(self.undecided))
            rows = self.undecided.pop(producer_id)
            commit = self.random.random() < 0.5
            end_transaction(self.log, producer_id, commit=commit)
            if commit:
                self.committed = sorted([*self.committed, *rows])

    def last_stable_offset(self) -> int:
        unstable = self.log.producers.first_unstable_offset(self.log.log_end_offset)
        return self.log.log_end_offset if unstable is None else unstable

    def write_and_delete(self) -> None:
        """Writes some more records, durably; then segments may go, and the power on the way. Or nothing."""
        if self.random.random() < 0.7:
            return
        disk = self.log.disk.disk
        assert isinstance(disk, FaultyDisk)
        cut, disk.before_operation = disk.before_operation, None
        for _ in range(self.random.randrange(10)):
            self.write()
        while self.undecided:
            self.decide()
        self.log.roll(self.now_ms)
        self.log.flush()
        disk.before_operation = cut
        start = self.log.log_end_offset
        if self.random.random() < 0.5:
            start = self.random.randrange(self.log.log_start_offset, start + 1)
        self.log.advance_log_start(start)
        if self.random.random() < 0.5:
            self.log_start_offset = start

    def clean(self, room: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.log.flush()
        dirt = compaction.measure(self.log, self.last_stable_offset(), self.now_ms)
        self.recovery_point = max(self.recovery_point, dirt.end_offset)
        cleaning = compaction.Compaction.begin(self.log, dirt, now_ms=self.now_ms, map_bytes=room * BYTES_OF_AN_ENTRY)
        for _ in cleaning.write():
            pass
        meanwhile()
        # Also of a cleaning that is cut off, and swapped in by the next opening.
        self.most_cleaned = max(self.most_cleaned, cleaning.end_offset)
        exchange(self.log, cleaning, now_ms=self.now_ms, meanwhile=meanwhile)

    def restart(self) -> None:
        log, clean = self.log, self.random.random() < 0.5
        if clean:
            log.close()
        else:
            log.flush()
        self.log = Log.open(
            log.disk,
            log.path,
            CONFIG,
            now_ms=self.now_ms,
            clean_shutdown=clean,
            # As low as may be: what is known of producers has to come from what is left of the log.
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            cleaned_offset=log.cleaned_offset if self.random.random() < 0.8 else 0,
        )

    def forget_snapshots(self) -> None:
        self.log.producer_state.drop_snapshots_above(-1)
        self.log.producer_state.forget()
        _ = self.log.producers


def found_in(log: Log) -> list[tuple[BatchHeader, Record]]:
    return [(header, record) for header, piece in log.batches() for record in iter_records(piece.read())]


def readable(log: Log, last_stable_offset: int) -> list[Row]:
    """Returns the records of a consumer with read_committed, which gets the aborted transactions with each fetch."""
    rows: list[Row] = []
    offset = log.log_start_offset
    while offset < last_stable_offset:
        piece = log.read(offset, max_bytes=400, max_offset=last_stable_offset)
        if not piece.size:
            break
        listed = sorted(log.aborted_transactions(offset, piece), key=lambda it: it.first_offset)
        aborted: set[int] = set()
        for header, record in found_in_piece(piece.read()):
            while listed and listed[0].first_offset <= header.last_offset:
                aborted.add(listed.pop(0).producer_id)
            offset = header.next_offset
            if record is None:
                continue
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                assert record.key is not None
                rows.append((record.offset, record.key.decode(), record.value.decode() if record.value else None))
    return rows


def found_in_piece(data: bytes) -> list[tuple[BatchHeader, Record | None]]:
    found: list[tuple[BatchHeader, Record | None]] = []
    for position, header in iter_headers(data):
        records = list(iter_records(data, position))[: header.records_count]
        found += [(header, record) for record in records] or [(header, None)]
    return found


def check(history: History) -> None:
    log = history.log
    stable = history.last_stable_offset()
    start = log.log_start_offset
    assert start >= history.log_start_offset
    rows = [row for row in readable(log, stable) if row[0] >= start]
    committed = [row for row in history.committed if start <= row[0] < stable]
    assert set(rows) <= set(committed), "something that was never committed is seen"
    assert table(rows) == table(committed)
    for header, record in found_in(log):
        if not header.is_control:
            assert record.key is not None
            value = record.value.decode() if record.value else None
            assert history.shown[record.offset] == (record.key.decode(), value, record.timestamp)
    # Of what was cleaned each key is there once at most, and what is beyond is there as a whole.
    cleaned = [row for row in rows if row[0] < log.cleaned_offset]
    assert len({key for _, key, _ in cleaned}) == len(cleaned)
    untouched = history.most_cleaned
    assert [row for row in rows if row[0] >= untouched] == [row for row in committed if row[0] >= untouched]
    assert [base for base, _ in read_all(log)] == sorted({base for base, _ in read_all(log)})
    for producer_id, sequence in history.sequences.items():
        if producer_id >= 0:
            assert log.producers.entries[producer_id].last_sequence == sequence - 1


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_a_reader_never_gets_anything_else(seed: int, room: int) -> None:
    history = History(seed)
    rnd = history.random
    for _ in range(70):
        chance = rnd.random()
        if chance < 0.6:
            history.write()
        elif chance < 0.75:
            history.decide()
        elif chance < 0.8:
            history.restart()
            check(history)
        elif chance < 0.85:
            history.forget_snapshots()
        else:
            history.log.roll(history.now_ms)
            history.clean(room)
            check(history)
        history.now_ms += rnd.randrange(200)
    check(history)


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 2**32), st.integers(0, 10**6), st.sampled_from(("crash", "kill")))
def test_nor_when_the_power_goes_in_the_middle_of_a_cleaning(seed: int, moment: int, way: str) -> None:
    history = History(seed)
    rnd = history.random
    for _ in range(4):
        for _ in range(12):
            history.write()
            if rnd.random() < 0.4:
                history.decide()
            history.now_ms += rnd.randrange(200)
        history.log.roll(history.now_ms)
        history.log.flush()
        cut_off(history, moment, way)
        check(history)
        history.clean(30)
        check(history)


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 2**32), st.integers(0, 10**6), st.sampled_from(("crash", "kill")))
def test_nor_when_records_are_deleted_before_the_power_goes(seed: int, moment: int, way: str) -> None:
    history = History(seed)
    for _ in range(4):
        for _ in range(12):
            history.write()
            history.now_ms += history.random.randrange(200)
        history.decide()
        history.log.roll(history.now_ms)
        history.log.flush()
        cut_off(history, moment, way, history.write_and_delete)
        check(history)


class PowerCutError(Exception):
    """The power fails at this point."""


def cut_off(history: History, moment: int, way: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    disk = history.log.disk.disk
    assert isinstance(disk, FaultyDisk)
    left = moment % 200

    def cut(_operation: str, _path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerCutError

    cleaned_offset = history.log.cleaned_offset
    disk.before_operation = cut
    try:
        history.clean(30, meanwhile)
    except PowerCutError:
        after = disk.crash() if way == "crash" else disk.kill()
        history.log = Log.open(
            after,
            history.log.path,
            CONFIG,
            now_ms=history.now_ms,
            clean_shutdown=False,
            recovery_point=history.recovery_point,
            log_start_offset=history.log_start_offset,
            cleaned_offset=cleaned_offset,
        )
    finally:
        disk.before_operation = None
