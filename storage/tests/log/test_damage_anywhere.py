"""Random damage in any place of a closed log: what was not touched can be read, and nothing but errors is raised.

A batch behind the recovery point may have gone with what is cut; its offsets are then beyond the log's end, or given to
others. Where no recovery looked at a batch, its bytes are sent as they are, and its reader finds the wrong CRC.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kwire_protocol.records import InvalidBatch, check_batch, read_header
from kwire_storage import names
from kwire_storage.config import LogConfig
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.open_files import OpenFiles
from kwire_storage.errors import CorruptLogError, OffsetOutOfRange
from kwire_storage.log.log import Log

from devtools.suite.tiers import examples
from testkit.storage.logs import append, end_transaction, open_log

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300, retention_ms=-1)
OFFSET_BYTES = 8
EPOCH_BYTES = range(12, 16)
"""No CRC covers the leader epoch, nor is there anything that it must be."""


class Kind(Enum):
    FLIP = "flip"
    ZERO = "zero a sector"
    CUT = "cut bytes out"
    NOISE = "noise"


@attrs.frozen
class Batch:
    path: str
    position: int
    base: int
    last: int
    data: bytes


@attrs.frozen
class Closed:
    disk: FaultyDisk
    batches: tuple[Batch, ...]
    end: int


@attrs.frozen
class Spoilt:
    path: str
    first: int
    after: int
    kind: Kind
    removed: int = 0

    def touches(self, batch: Batch) -> bool:
        end = batch.position + len(batch.data)
        return batch.path == self.path and max(self.first, batch.position) < min(self.after, end)


def closed_log() -> Closed:
    """Makes six segments of batches small and large, of two producers, with transactions."""
    disk = FaultyDisk()
    log = open_log(disk, CONFIG)
    sequences = {1: 0, 2: 0}
    for number in range(60):
        count = (1, 3, 12, 2, 7)[number % 5]
        producer_id = number % 3
        if producer_id and number % 7 == 3:
            append(log, count, size=40, producer_id=producer_id, sequence=sequences[producer_id], transactional=True)
            sequences[producer_id] += count
            end_transaction(log, producer_id, commit=number % 2 == 0)
        elif producer_id:
            append(
                log, count, size=40, producer_id=producer_id, sequence=sequences[producer_id], leader_epoch=number // 20
            )
            sequences[producer_id] += count
        else:
            append(log, count, size=(5, 60, 0)[number % 3], timestamp_ms=1000 + 10 * number, leader_epoch=number // 20)
    batches = tuple(
        Batch(f"{segment.path}{names.LOG}", position, header.base_offset, header.last_offset, data)
        for segment, header, position in log.segments.headers_from(0)
        for data in [segment.file.read(position, header.size_in_bytes)]
    )
    assert len(log.segments) >= 5
    log.close()
    return Closed(disk, batches, log.log_end_offset)


CLOSED = closed_log()
PATHS = sorted({batch.path for batch in CLOSED.batches})


def spoil(disk: FaultyDisk, path: str, position: int, size: int, kind: Kind) -> Spoilt:
    data = bytearray(disk.read_bytes(path))
    position %= len(data)
    match kind:
        case Kind.FLIP:
            data[position] ^= 1 << size % 8
            spoilt = Spoilt(path, position, position + 1, kind)
        case Kind.ZERO:
            first = position // 512 * 512
            after = min(first + 512, len(data))
            spoilt = replaced(path, data, first, bytes(after - first), kind)
        case Kind.CUT:
            after = min(position + size, len(data))
            # Cut out a little further on, equal bytes leave the same: nobody can tell which ones are missing.
            same = next(
                (n for n in range(len(data) - after) if data[after + n] != data[position + n]), len(data) - after
            )
            spoilt = Spoilt(path, position, after + same, kind, after - position)
            del data[position:after]
        case Kind.NOISE:
            after = min(position + size, len(data))
            noise = bytes((number * 167 + size) % 251 for number in range(after - position))
            spoilt = replaced(path, data, position, noise, kind)
    disk.write_bytes(path, bytes(data))
    return spoilt


def replaced(path: str, data: bytearray, first: int, by: bytes, kind: Kind) -> Spoilt:
    """Puts other bytes there. Bytes that stay the same are not damage."""
    changed = [first + number for number, byte in enumerate(by) if data[first + number] != byte]
    data[first : first + len(by)] = by
    return Spoilt(path, min(changed, default=first), max(changed, default=first - 1) + 1, kind)


def is_hidden(spoilt: Spoilt, batch: Batch, touched: list[Batch]) -> bool:
    """Returns whether it lies, now, within the length in the header of a spoilt batch.

    Where that length leads to a good batch, no others on the way are looked for.
    """
    position = batch.position - spoilt.removed
    return spoilt.removed > 0 and any(
        it.path == batch.path and it.position <= position and position + len(batch.data) <= it.position + len(it.data)
        for it in touched
    )


def served(log: Log, offset: int, max_bytes: int = 700) -> bytes | None:
    """Returns a reader's bytes at an offset; None where it gets an error."""
    try:
        piece = log.read(offset, max_bytes=max_bytes, max_offset=log.log_end_offset)
    except CorruptLogError:
        return None
    log_aborted = log.aborted_transactions(offset, piece)
    assert len(log_aborted) < 20
    return piece.read()


def only_offset_or_epoch(spoilt: Spoilt, batch: Batch) -> bool:
    """Returns whether only bytes were touched that no CRC covers."""
    touched = range(max(spoilt.first - batch.position, 0), min(spoilt.after - batch.position, len(batch.data)))
    return all(at < OFFSET_BYTES or at in EPOCH_BYTES for at in touched)


def check(log: Log, spoilt: Spoilt, *, checked_from: int, old_end: int | None = None) -> None:
    """`checked_from`: offsets from there on were looked at by a recovery. `old_end`: what is new begins there."""
    end = log.log_end_offset if old_end is None else old_end
    touched = [batch for batch in CLOSED.batches if spoilt.touches(batch)]
    offset_is_wrong = (
        any(spoilt.first < batch.position + OFFSET_BYTES for batch in touched) and spoilt.kind is Kind.FLIP
    )
    for batch in CLOSED.batches:
        if batch in touched or batch.last >= end or is_hidden(spoilt, batch, touched):
            continue
        for offset in {batch.base, batch.last}:
            data = served(log, offset)
            if data is not None and data[: len(batch.data)] == batch.data:
                continue
            # Its neighbour's header has its offsets, because of a bit that no CRC covers.
            assert offset_is_wrong, f"{batch.base} at {batch.position}: {data!r}"
            assert batch.base < checked_from
    originals = {batch.data for batch in CLOSED.batches}
    unprovable = [batch.data[17:] for batch in touched if only_offset_or_epoch(spoilt, batch)]
    for offset in range(log.log_start_offset, end):
        data = served(log, offset, max_bytes=1)
        if data is None or offset < checked_from or offset >= CLOSED.end:
            continue
        assert data in originals or data[17:] in unprovable, f"at {offset}: {data!r}"


def use(log: Log) -> None:
    """Walks over batches in every other way: each ends, and raises only its documented errors."""
    for timestamp_ms in (0, 1005, 1300, 1590, 10**6):
        with suppress(CorruptLogError, InvalidBatch):
            log.offset_for_timestamp(timestamp_ms, max_offset=log.log_end_offset)
    with suppress(CorruptLogError, InvalidBatch):
        log.max_timestamp_offset(max_offset=log.log_end_offset)
    assert sum(1 for _ in log.segments.headers_from(0)) <= len(CLOSED.batches) + 3
    with suppress(CorruptLogError):
        for header, piece in log.batches():
            check_batch(piece.read(), header)
    assert log.producers.first_undecided_offset is None or log.producers.first_undecided_offset >= 0
    assert log.leader_epochs.latest <= 2
    log.apply_retention(10**6, log.log_end_offset)
    with pytest.raises(OffsetOutOfRange):
        log.read(log.log_end_offset + 1, max_bytes=1, max_offset=log.log_end_offset)


damages = st.tuples(st.sampled_from(PATHS), st.integers(0, 3200), st.integers(1, 700), st.sampled_from(Kind))
bounded = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@bounded
@given(damage=damages, order=st.booleans(), max_files=st.integers(1, 4))
def test_after_a_clean_stop(damage: tuple[str, int, int, Kind], order: bool, max_files: int) -> None:
    disk = CLOSED.disk.kill()
    disk.open_files = OpenFiles(max_files, max_index_bytes=100)
    spoilt = spoil(disk, *damage)
    log = open_log(disk, CONFIG)
    assert log.log_end_offset == CLOSED.end
    if order:
        use(log)
    check(log, spoilt, checked_from=CLOSED.end)
    use(log)
    go_on(log, spoilt)


@bounded
# What is new has offsets of what was cut; and a recovery begins where a segment does.
@example(damage=(PATHS[0], 2563, 1, Kind.FLIP), recovery_point=0, max_files=1)
@example(damage=(PATHS[2], 17, 1, Kind.FLIP), recovery_point=157, max_files=1)
@given(damage=damages, recovery_point=st.integers(0, CLOSED.end + 1), max_files=st.integers(1, 4))
def test_after_a_crash(damage: tuple[str, int, int, Kind], recovery_point: int, max_files: int) -> None:
    disk = CLOSED.disk.kill()
    disk.open_files = OpenFiles(max_files, max_index_bytes=100)
    spoilt = spoil(disk, *damage)
    log = open_log(disk, CONFIG, clean=False, recovery_point=recovery_point)
    assert log.recovery is not None
    first_touched = min((batch.base for batch in CLOSED.batches if spoilt.touches(batch)), default=CLOSED.end)
    if log.recovery.cut_bytes or log.recovery.deleted_segments:
        assert log.log_end_offset >= recovery_point
        assert log.log_end_offset <= first_touched or spoilt.kind in (Kind.FLIP, Kind.CUT)
    assert log.log_end_offset >= min(first_touched, CLOSED.end)
    scanned = max((base for base in log.segments.bases if base <= recovery_point), default=0)
    check(log, spoilt, checked_from=scanned)
    use(log)
    go_on(log, spoilt)


def go_on(log: Log, spoilt: Spoilt) -> None:
    """Appends, unless the log gives its reason against it, and finds everything after one more start."""
    end = log.log_end_offset
    with suppress(CorruptLogError):
        assert append(log, 2, size=40).base_offset == end
        data = served(log, end)
        assert data is not None
        assert read_header(data).base_offset == end
    log.close()
    log = open_log(log.disk, CONFIG)
    check(log, spoilt, checked_from=log.log_end_offset, old_end=end)
