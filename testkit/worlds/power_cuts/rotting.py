"""One byte rots after a power cut, before the restart: everything that is served is right, and the rest is there.

The name of the state is the seed of the choice: one file, one byte of it, and one of its bits. Without a CRC (Apache
Kafka's formats have none there) a digit that turned into another goes unnoticed in a checkpoint: there a bit flips that
no text has. `.txnindex` and `.timeindex` are left out for the same reason; `kwire log check` finds those.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import attrs
import pytest
from kwire_protocol.records import InvalidBatch, check_batch, iter_headers, read_header
from kwire_storage import names
from kwire_storage.checkpoints import decode_offsets
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.errors import CorruptLogError, CorruptRangeError
from kwire_storage.log.log import Log

from testkit.worlds.power_cuts.checking import check_epochs, check_producers, timeline_of
from testkit.worlds.power_cuts.history import Batch, Known
from testkit.worlds.power_cuts.storage_trace import Key, StorageTrace, open_folder
from testkit.worlds.power_cuts.sweep import BrokenPromise, State

_NO_CRC = (*range(8), *range(12, 16))
"""No CRC covers a batch's offset, which `test_damage_anywhere.py` spoils, and its leader epoch, which may be any."""
_NO_TEXT = 0x80
_CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)


@attrs.frozen
class Rot:
    path: str
    position: int
    bits: int
    batch: Batch | None
    """The one that it is in."""
    is_flushed: bool
    """Below the recovery point, where nothing is ever cut."""

    def __str__(self) -> str:
        return f"byte {self.position} of {self.path} rots: bits {self.bits:#04x}"


def rot(disk: FaultyDisk, chance: Random) -> Rot | None:
    """Something of the logs, or of what is known of them; None where there is nothing."""
    found = [name for name in _CHECKPOINTS if disk.exists(name) and disk.size(name)]
    for folder in (name for name in disk.listdir("") if names.parse_partition_folder(name)):
        for name in disk.listdir(folder):
            path = f"{folder}/{name}"
            suffix = name[name.find(".") :] if "." in name else name
            if suffix in (names.LOG, names.INDEX, names.SNAPSHOT, names.LEADER_EPOCH_CHECKPOINT) and disk.size(path):
                found.append(path)
    if not found:
        return None
    path = chance.choice(sorted(found))
    position = chance.randrange(disk.size(path))
    is_text = path.endswith("checkpoint")
    bits = _NO_TEXT if is_text else chance.choice((1 << chance.randrange(8), 0xFF))
    batch, is_flushed = None, False
    if path.endswith(names.LOG):
        batch, at = _batch_at(disk.read_bytes(path), position)
        if batch is None or position - at in _NO_CRC:
            return None
        points = {}
        if disk.exists(names.RECOVERY_POINT_CHECKPOINT):
            points = decode_offsets(disk.read_bytes(names.RECOVERY_POINT_CHECKPOINT))
        key = names.parse_partition_folder(path.partition("/")[0])
        is_flushed = key is not None and batch.end <= points.get(key, 0)
    disk.rot(path, position, bits)
    return Rot(path, position, bits, batch, is_flushed)


def _batch_at(data: bytes, position: int) -> tuple[Batch | None, int]:
    try:
        for at, header in iter_headers(memoryview(data)):
            end = at + header.size_in_bytes
            if at <= position < end:
                check_batch(memoryview(data)[at:end], header, at)
                return Batch(header.base_offset, header.next_offset, data[at:end]), at
    except InvalidBatch:
        pass
    return None, 0


def examine_rotten(trace: StorageTrace, state: State) -> bool:
    """Lets something of the state rot and restarts; False where there was nothing. Raises BrokenPromise."""
    disk = state.disk()
    rotten = rot(disk, Random(f"rot {state.name}"))
    if rotten is None:
        return False
    try:
        _check(trace, state, disk, rotten)
    except Exception as error:
        description = [f"{type(error).__name__}: {error}", *state.description, str(rotten)]
        raise BrokenPromise("\n  ".join([state.name, *description])) from error
    return True


def _check(trace: StorageTrace, state: State, disk: FaultyDisk, rotten: Rot) -> None:
    if rotten.path in _CHECKPOINTS:
        with pytest.raises(CorruptLogError, match=rotten.path):
            open_folder(disk, trace.config)
        # `kwire log repair` does the same; the logs have all of the file's content but their start.
        disk = disk.kill()
        disk.remove(rotten.path)
    folder = open_folder(disk, trace.config)
    for key, log in folder.logs.items():
        known = trace.histories[key].at(state.moment.position)
        if rotten.path == names.LOG_START_CHECKPOINT:
            known.lowest_start = min(known.lowest_start, log.segments.bases[0])
        is_here = rotten.path.startswith(f"{key[0]}-{key[1]}/")
        _check_log(log, known, rotten if is_here else None)
    for key, history in trace.histories.items():
        assert key in folder.logs or not history.at(state.moment.position).must_exist(lost_power=True), f"{key} is gone"
    _roll_and_flush(folder.logs)
    folder.close()


def _check_log(log: Log, known: Known, rotten: Rot | None) -> None:
    batch = rotten.batch if rotten is not None else None
    assert known.lowest_start <= log.log_start_offset <= known.highest_start, f"it starts at {log.log_start_offset}"
    least = known.durable_end
    if batch is not None and rotten is not None and not rotten.is_flushed:
        # It looks the same as a batch that a power cut tore.
        least = min(least, batch.base)
    assert log.log_end_offset >= least, (
        f"the log ends at {log.log_end_offset}, and everything below {least} was flushed"
    )
    found = list(_served(log, batch))
    if batch is None:
        timeline = timeline_of(found, log.log_start_offset, log.log_end_offset, known)
        headers = [read_header(it.data) for it in found]
        check_epochs(log, headers)
        if rotten is not None and rotten.path.endswith(names.SNAPSHOT):
            # What the snapshot had of producers whose batches are gone is lost.
            for header in headers:
                if header.producer_id >= 0 and not header.is_control:
                    assert log.producers.entries[header.producer_id].last_sequence >= header.last_sequence
        else:
            check_producers(log, timeline, headers)
        return
    sent = {it.base: it for timeline in (*known.timelines, *known.may_return) for it in timeline}
    wrong = [it.base for it in found if sent.get(it.base) != it]
    assert not wrong, f"what is served at {wrong} was never sent"
    served = {it.base for it in found}
    missing = [
        base
        for base, it in sent.items()
        if all(it in timeline for timeline in known.timelines)
        and log.log_start_offset < it.end <= least
        and base != batch.base
        and base not in served
    ]
    assert not missing, f"{missing} are not served, and did not rot"


def _served(log: Log, rotten: Batch | None) -> Iterator[Batch]:
    """Yields the batches that a reader gets if it skips those that are reported, or found, to be corrupt."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = log.read(offset, max_bytes=1, max_offset=log.log_end_offset).read()
        except CorruptRangeError as error:
            limit = log.log_end_offset if rotten is None else max(rotten.end, log.log_end_offset)
            if rotten is None or error.first_offset < rotten.base or not offset < error.end_offset <= limit:
                raise AssertionError("more is said to be corrupt than rotted") from error
            offset = error.end_offset
            continue
        assert data, f"nothing to read at {offset}, and the log ends at {log.log_end_offset}"
        header = read_header(data)
        try:
            check_batch(data, header)
        except InvalidBatch as error:
            if rotten is None or not rotten.base <= offset < rotten.end:
                raise AssertionError(f"a wrong CRC at {offset}, where nothing rotted") from error
            offset = rotten.end
            continue
        assert header.next_offset > offset, f"what is read at {offset} ends at {header.next_offset}"
        yield Batch(header.base_offset, header.next_offset, data)
        offset = header.next_offset


def _roll_and_flush(logs: dict[Key, Log]) -> None:
    for log in logs.values():
        log.roll(0)
        log.flush()
