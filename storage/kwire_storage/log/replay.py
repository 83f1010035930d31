"""Reading a log from some offset to its end; and the two things that are known of it beside its records.

Leader epochs and producers are folds over the batches with a file as a head start, read when first asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from kwire_storage import names
from kwire_storage.directory.checkpoints import decode_epochs
from kwire_storage.errors import CorruptLogError
from kwire_storage.log import damage, durability
from kwire_storage.log.epochs import EpochCache
from kwire_storage.log.slices import LogSlice
from kwire_storage.producers.markers import apply_batch, decode_marker
from kwire_storage.producers.snapshots import decode_snapshot
from kwire_storage.producers.states import ProducerEntry, ProducerStates

if TYPE_CHECKING:
    from kwire_protocol.records import BatchHeader

    from kwire_storage.log.log import Log
    from kwire_storage.log.segment import Segment


logger = logging.getLogger(__name__)


def load_epochs(log: Log) -> EpochCache:
    try:
        data = log.disk.read_bytes(durability.epochs_path(log))
    except FileNotFoundError:
        return EpochCache()
    try:
        epochs = EpochCache(decode_epochs(data))
    except CorruptLogError as error:
        logger.error("%s: %s; leader epochs are taken from the batches", durability.epochs_path(log), error)
        epochs = EpochCache()
        for _, header, _ in log.headers_from(log.bases[0]):
            epochs.assign(header.partition_leader_epoch, header.base_offset)
    epochs.truncate_from_start(log.log_start_offset)
    return epochs


def load_producers(log: Log) -> ProducerStates:
    """The newest snapshot up to the log's end, and a replay of what came after it."""
    producers = ProducerStates(
        log.config.producer_id_expiration_ms, log.config.producer_id_expiration_check_interval_ms
    )
    start = load_snapshot(log, producers, log.log_end_offset)
    for segment, header, position in log.headers_from(log.bases[0] if start is None else start):
        if header.producer_id >= 0:
            marker = None
            if header.is_control:
                data = damage.read_batch(log, segment, position, header)
                if data is None:
                    continue
                marker = decode_marker(data, 0, header)
            apply_batch(producers, None, header, header.base_offset, header.max_timestamp, marker)
    return producers


def load_snapshot(log: Log, producers: ProducerStates, most_offset: int, above: int = -1) -> int | None:
    """Replaces what is known by the newest good snapshot up to that offset; returns where it was taken.

    None, and nothing changed: there is none, or none that was taken above the other offset.
    """
    for offset in reversed([offset for offset in log.snapshot_offsets if above < offset <= most_offset]):
        entries = read_snapshot(log, offset)
        if entries is not None:
            producers.load(entries)
            return offset
    return None


def read_snapshot(log: Log, offset: int) -> list[ProducerEntry] | None:
    """What is in the snapshot of that offset; one that is no good is removed."""
    try:
        return decode_snapshot(log.disk.read_bytes(durability.snapshot_path(log, offset)))
    except (CorruptLogError, FileNotFoundError):
        durability.remove_snapshot(log, offset)
        return None


def batches(log: Log, start_offset: int) -> Iterator[tuple[BatchHeader, LogSlice]]:
    """See `Log.batches`."""
    start = max(start_offset, log.log_start_offset)
    for segment, end_offset in log.segments_from(start):
        if segment.base_offset >= log.log_end_offset:
            break  # nothing was appended to it, so that its file need not be there
        for position, header in damage.headers(log, segment, start):
            data = damage.read_batch(log, segment, position, header)
            damage.refuse(segment, start)
            if data is None:
                raise CorruptLogError(f"{segment.path}{names.LOG}: the batch at {position} has a wrong CRC")
            yield header, LogSlice.of(data, position, header.base_offset)
        if segment.base_offset < end_offset:
            damage.check_end(log, segment, end_offset)
        damage.refuse(segment, start)


def headers_from(log: Log, offset: int) -> Iterator[tuple[Segment, BatchHeader, int]]:
    """See `Log.headers_from`."""
    for segment, end_offset in log.segments_from(offset):
        if segment.base_offset >= log.log_end_offset:
            break
        if offset >= end_offset:
            continue
        with suppress(CorruptLogError):
            for position, header in damage.headers(log, segment, offset):
                if header.base_offset >= end_offset:
                    break
                yield segment, header, position
