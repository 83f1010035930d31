"""Rebuilds the files that are derived from batches, using the broker's own fold.

Damaged ranges are skipped: if the user keeps them, the records after them must still be found.
"""

from __future__ import annotations

from collections.abc import Collection

from kwire_storage import names
from kwire_storage.checkpoints import decode_epochs, encode_epochs, encode_partition_metadata
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError
from kwire_storage.inspection.copies import Copies
from kwire_storage.inspection.layout import Layout, read_layout
from kwire_storage.inspection.partition_check import PartitionContext, Progress
from kwire_storage.inspection.producers_check import ProducerFold
from kwire_storage.log.epochs import EpochCache
from kwire_storage.log.segment import Segment
from kwire_storage.log.walk import Batch, Damage, walk
from kwire_storage.producers.snapshots import encode_snapshot
from kwire_storage.producers.txn_index import encode_aborted


def rebuild(
    disk: Disk, path: str, wanted: Collection[str], context: PartitionContext, copies: Copies, progress: Progress
) -> None:
    """Writes each of the files `wanted` (paths), with a copy of the old file. Raises OSError.

    A snapshot at the first segment's base cannot be rebuilt from anything: it is moved away, and producers begin
    there with nothing, as a broker would have them.
    """
    layout = read_layout(disk, path)
    metadata = f"{path}/{names.PARTITION_METADATA}"
    if metadata in wanted and context.topic is not None:
        copies.replace(metadata, encode_partition_metadata(context.topic.topic_id))
    if not layout.bases:
        return
    _Rebuild(disk, layout, set(wanted), context, copies, progress).run()


class _Rebuild:
    def __init__(
        self,
        disk: Disk,
        layout: Layout,
        wanted: set[str],
        context: PartitionContext,
        copies: Copies,
        progress: Progress,
    ) -> None:
        self._disk = disk
        self._layout = layout
        self._wanted = wanted
        self._context = context
        self._copies = copies
        self._progress = progress
        self._epochs = EpochCache()
        first = layout.of(layout.bases[0], names.SNAPSHOT)
        if first in wanted:
            copies.set_aside(first)
            wanted.discard(first)
            layout.files.discard(names.offset_name(layout.bases[0], names.SNAPSHOT))
        self._producers = ProducerFold(disk, layout)
        found = (names.parse_offset_name(path.rpartition("/")[2]) for path in wanted if path.endswith(names.SNAPSHOT))
        self._snapshots = sorted(offset for offset, _ in filter(None, found))
        self._end = layout.bases[0]

    def run(self) -> None:
        for base in self._layout.bases:
            self._segment(base)
        self._write_snapshots(self._end)
        path = f"{self._layout.path}/{names.LEADER_EPOCH_CHECKPOINT}"
        if path in self._wanted:
            self._keep_last_election(path)
            self._epochs.truncate_from_start(max(self._layout.bases[0], self._context.log_start))
            self._copies.replace(path, encode_epochs(self._epochs.entries))

    def _segment(self, base: int) -> None:
        topic = self._context.topic
        interval = 4096 if topic is None else topic.index_interval_bytes
        segment = Segment(self._disk, self._layout.path, base, interval, 0)
        segment.begin_rebuild()
        self._producers.aborted.clear()
        file = self._disk.open_read(self._layout.of(base, names.LOG))
        try:
            for piece in walk(file, file.size, base, self._layout.next_base(base)):
                if isinstance(piece, Damage):
                    self._progress(piece.end - piece.position)
                else:
                    self._batch(segment, piece)
        finally:
            file.close()
        segment.time_index.maybe_append(segment.max_timestamp, segment.offset_of_max_timestamp - base)
        for suffix, content in (
            (names.INDEX, segment.index.to_bytes()),
            (names.TIME_INDEX, segment.time_index.to_bytes()),
            (names.TXN_INDEX, encode_aborted(self._producers.aborted)),
        ):
            path = self._layout.of(base, suffix)
            if path not in self._wanted:
                continue
            if content or suffix != names.TXN_INDEX:
                self._copies.replace(path, content)
            else:
                self._copies.set_aside(path)

    def _batch(self, segment: Segment, batch: Batch) -> None:
        position, header, _ = batch
        self._write_snapshots(header.last_offset)
        size = header.size_in_bytes
        segment.note(header.base_offset, header.last_offset, position, size, header.max_timestamp)
        self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._producers.fold(batch)
        self._end = header.next_offset
        self._progress(size)

    def _write_snapshots(self, up_to: int) -> None:
        while self._snapshots and self._snapshots[0] <= up_to:
            path = self._layout.of(self._snapshots.pop(0), names.SNAPSHOT)
            self._copies.replace(path, encode_snapshot(self._producers.states.entries.values()))

    def _keep_last_election(self, path: str) -> None:
        """Adds the last epoch of the file: if nothing was written in it yet, no batch has it."""
        try:
            rows = decode_epochs(self._disk.read_bytes(path))
        except (CorruptLogError, FileNotFoundError):
            return
        for epoch, start_offset in rows:
            if start_offset == self._end and epoch > self._epochs.latest:
                self._epochs.assign(epoch, start_offset)
