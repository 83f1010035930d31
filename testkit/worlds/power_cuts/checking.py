"""Holding a log that was opened again against its history: the records, and all that is derived from them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from kwire_protocol.records import BatchHeader, check_batch, iter_headers, read_header
from kwire_storage.log.log import Log
from kwire_storage.log.scan import scan_headers
from kwire_storage.producers.markers import decode_marker
from kwire_storage.producers.states import ProducerEntry, ProducerStates
from kwire_storage.producers.txn_index import AbortedTxn

from testkit.worlds.power_cuts import compacted
from testkit.worlds.power_cuts.history import Batch, Known


def nothing(_: Batch) -> bool:
    return False


def check_log(
    log: Log, known: Known, *, lost_power: bool, may_follow: Callable[[Batch], bool] = nothing
) -> list[Batch]:
    """Checks all promises of a log. Returns the matching beginning of a timeline, with the batches that its start has
    passed.

    A restart may append by itself. Batches of a restart `may_follow` the beginning, and are returned as well.
    """
    start, end = log.log_start_offset, log.log_end_offset
    assert known.lowest_start <= start <= known.highest_start, (
        f"the log starts at {start}, not in {known.lowest_start}..{known.highest_start}"
    )
    found = contents(log)
    sent = len(sent_of(found, known))
    if sent < len(found) and all(may_follow(batch) for batch in found[sent:]):
        end = found[sent].base
    else:
        sent = len(found)
    least = known.least_end(lost_power=lost_power)
    assert end >= least, f"the log ends at {end}, and everything below {least} was promised"
    timeline = timeline_of(found[:sent], start, end, known) + found[sent:]
    check_derived(log, timeline, found, known.cleaned_end)
    compacted.check_cleaned(log, found)
    return timeline


def sent_of(found: list[Batch], known: Known) -> list[Batch]:
    """Returns the batches before the first one of a restart."""
    sent = {batch for timeline in (*known.timelines, *known.may_return) for batch in timeline}
    return list(takewhile(sent.__contains__, found))


def contents(log: Log) -> list[Batch]:
    """Returns the batches as a consumer reads them; each is checked by its CRC."""
    found: list[Batch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes=1500, max_offset=log.log_end_offset)
        assert piece.size, f"nothing to read at {offset}, and the log ends at {log.log_end_offset}"
        data = piece.read()
        for position, header in iter_headers(data):
            check_batch(data, header, position)
            assert not found or header.base_offset >= found[-1].end, f"offset {header.base_offset} is there twice"
            end = position + header.size_in_bytes
            found.append(Batch(header.base_offset, header.next_offset, bytes(data[position:end])))
        assert found, f"no batch at {offset}"
        assert found[-1].end > offset, f"what is read at {offset} ends at {found[-1].end}"
        offset = found[-1].end
    return found


def timeline_of(found: list[Batch], start: int, end: int, known: Known) -> list[Batch]:
    """The beginning of a timeline that the log is, or is what compaction left of. Fails if there is none."""
    different = []
    for timeline in (*known.timelines, *known.may_return):
        if end == start or any(batch.end == end for batch in timeline):
            beginning = [batch for batch in timeline if batch.end <= end]
            if found == [batch for batch in beginning if batch.end > start]:
                return beginning
            if known.cleaned_end:
                different.append(compacted.difference(found, beginning, start, known.cleaned_end))
                if not different[-1]:
                    return beginning
    sent = [[(batch.base, batch.end) for batch in timeline] for timeline in known.timelines]
    there = [(batch.base, batch.end) for batch in found]
    raise AssertionError(f"the log has {there} in {start}..{end}; sent was one of {sent} {different}")


def check_derived(log: Log, timeline: list[Batch], found: list[Batch], cleaned_end: int) -> None:
    """Checks that indexes, epochs, producers and aborted transactions follow from the records."""
    headers = [read_header(batch.data) for batch in found]
    _check_indexes(log)
    check_epochs(log, headers)
    aborted = check_producers(log, timeline, headers)
    listed = [entry for segment in log.segments for entry in segment.aborted]
    assert len(set(listed)) == len(listed), f"aborted transactions are listed twice: {listed}"
    expected = [entry for entry in aborted if entry.last_offset >= log.log_start_offset]
    if cleaned_end:
        compacted.check_aborted(
            [it for it in listed if it.last_offset >= log.log_start_offset], expected, found, cleaned_end
        )
        return
    assert [entry for entry in listed if entry.last_offset >= log.log_start_offset] == expected, "aborted transactions"


def _check_indexes(log: Log) -> None:
    for segment in log.segments:
        positions: dict[int, int] = {}
        latest: dict[int, int] = {}
        newest = -1
        for position, header in scan_headers(segment.file, 0, segment.size):
            last = header.last_offset - segment.base_offset
            newest = max(newest, header.newest_record_ms)
            positions[last], latest[last] = position, newest
        index, time_index = segment.index, segment.time_index
        for offset, position in zip(index.offsets, index.positions, strict=True):
            assert positions.get(offset) == position, f"{segment.path}.index: {offset} is not at {position}"
        for timestamp, offset in zip(time_index.timestamps, time_index.offsets, strict=True):
            assert latest.get(offset) == timestamp, f"{segment.path}.timeindex: {timestamp} at {offset}"
        for last, position in positions.items():
            found = segment.locate(last + segment.base_offset)
            assert found is not None, f"{segment.path}: {last} is not found"
            assert found[0] == position, f"{segment.path}: {last} is looked for at {found[0]}, not at {position}"
        assert segment.largest_timestamp == newest, f"{segment.path}: largest timestamp {segment.largest_timestamp}"


def check_epochs(log: Log, headers: list[BatchHeader]) -> None:
    entries = log.leader_epochs.entries
    assert entries == sorted(set(entries)), f"leader epochs {entries}"
    assert all(start <= log.log_end_offset for _, start in entries), f"{entries} beyond the log"
    for header in headers:
        # A log start that the crash undid may be in the file of the epochs already.
        if entries and header.base_offset >= entries[0][1]:
            assert log.leader_epochs.epoch_at(header.base_offset) == header.partition_leader_epoch, f"epochs {entries}"
    assert entries or not headers, "no leader epochs"


def check_producers(log: Log, timeline: list[Batch], headers: list[BatchHeader]) -> list[AbortedTxn]:
    """Producers are the fold over the timeline; returns the aborted transactions in it."""
    expected = ProducerStates()
    aborted = []
    for batch in timeline:
        header = read_header(batch.data)
        if header.producer_id < 0:
            continue
        marker = decode_marker(batch.data, 0, header) if header.is_control else None
        if marker is None:
            expected.apply(header, batch.base)
            continue
        completed = expected.apply_marker(header, batch.base, marker, header.max_timestamp)
        if completed is not None and completed.aborted:
            stable = expected.last_stable_offset_after(completed)
            aborted.append(AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable))
    found = log.producers
    here = {header.producer_id for header in headers}
    assert found.entries.keys() <= expected.entries.keys(), f"producers {sorted(found.entries)}"
    for producer_id, entry in expected.entries.items():
        if producer_id not in found.entries:
            assert producer_id not in here, f"producer {producer_id} is forgotten"
            continue
        mine = found.entries[producer_id]
        summary, wanted = _summary(mine), _summary(entry)
        assert summary == wanted, f"producer {producer_id}: {summary}, but {wanted} from the log"
    assert found.first_undecided_offset == expected.first_undecided_offset, "open transactions"
    return aborted


def producers_of(log: Log) -> dict[int, tuple[object, ...]]:
    """Returns the state of each producer."""
    return {producer_id: _summary(entry) for producer_id, entry in log.producers.entries.items()}


def _summary(entry: ProducerEntry) -> tuple[object, ...]:
    """The fields that a snapshot has too. Its one timestamp, of entry and batch, may be a marker's."""
    last = entry.batches[-1][:4] if entry.batches else None
    return entry.epoch, entry.coordinator_epoch, entry.txn_first_offset, last
