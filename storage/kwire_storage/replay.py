"""The two things that are known of a log beside its records, read when first asked for: leader epochs and producers.

Both are folds over the batches with a file as a head start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_storage import durability
from kwire_storage.checkpoints import decode_epochs
from kwire_storage.epochs import EpochCache
from kwire_storage.errors import CorruptLogError
from kwire_storage.markers import apply_batch, decode_marker
from kwire_storage.producer_snapshots import decode_snapshot
from kwire_storage.producers import ProducerStates

if TYPE_CHECKING:
    from kwire_storage.log import Log


def load_epochs(log: Log) -> EpochCache:
    try:
        data = log.disk.read_bytes(durability.epochs_path(log))
    except FileNotFoundError:
        return EpochCache()
    epochs = EpochCache(decode_epochs(data))
    epochs.truncate_from_start(log.log_start_offset)
    return epochs


def load_producers(log: Log) -> ProducerStates:
    """The newest snapshot up to the log's end, and a replay of what came after it."""
    producers = ProducerStates(log.config.producer_id_expiration_ms)
    start = log.bases[0]
    for offset in reversed([offset for offset in log.snapshot_offsets if offset <= log.log_end_offset]):
        try:
            producers.load(decode_snapshot(log.disk.read_bytes(durability.snapshot_path(log, offset))))
        except (CorruptLogError, FileNotFoundError):
            durability.remove_snapshot(log, offset)
        else:
            start = offset
            break
    for segment, header, position in log.headers_from(start):
        if header.producer_id >= 0:
            marker = None
            if header.is_control:
                marker = decode_marker(segment.file.read(position, header.size_in_bytes), 0, header)
            apply_batch(producers, None, header, header.base_offset, header.max_timestamp, marker)
    return producers
