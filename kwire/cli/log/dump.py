"""The rows of a dump: one dictionary per batch, record, index entry and so on, generated as they are written.

`--json` promises that the names in the rows stay the same. Offsets, positions and sizes are numbers; times are in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
from kwire_protocol.compression import CODEC_NAMES
from kwire_protocol.records import BatchHeader, InvalidBatch, Record, iter_records
from kwire_protocol.wire import uuid_to_text
from kwire_storage import names
from kwire_storage.checkpoints import MetaProperties, decode_epochs, decode_offsets, decode_partition_metadata
from kwire_storage.disk.files import Disk, File
from kwire_storage.errors import CorruptLogError
from kwire_storage.inspection import Batch, Damage, walk
from kwire_storage.inspection.layout import read_small
from kwire_storage.inspection.log_dir_check import CHECKPOINTS, is_folder
from kwire_storage.inspection.sparse_indexes import index_entries, time_index_entries
from kwire_storage.log.index import OffsetIndex
from kwire_storage.producers.snapshots import decode_snapshot
from kwire_storage.producers.txn_index import decode_aborted

from kwire.cli.log.internal_records import NOT_DECODED, Decoder, decode_control, decoder_for
from kwire.cli.log.printing import Printer, Row, bytes_fields
from kwire.cli.log.target import Shape, Target, disk_errors, find_target, is_known_file, log_file_base

_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_CUT_NOTE = "..."


@attrs.frozen
class DumpOptions:
    """The command's options of the same names."""

    records: bool = False
    batches: bool = True
    only: frozenset[str] = frozenset()
    decoder: str = "auto"
    offset: int | None = None
    max_batches: int | None = None
    max_bytes: int | None = None
    max_value_bytes: int = 1024


def run(folders: tuple[Path, ...], options: DumpOptions, *, as_json: bool) -> None:
    """Writes to standard output. Raises click.UsageError for a folder without logs."""
    targets = [find_target(folder) for folder in folders]
    printer = Printer(as_json=as_json)
    dump = Dump(options)
    with disk_errors():
        for target in targets:
            for row in dump.rows(target):
                printer.write(row)
    printer.finish()


class Dump:
    """Walks over targets, until a maximum is reached."""

    def __init__(self, options: DumpOptions) -> None:
        self._options = options
        self._batches = self._bytes = 0
        self._full = False

    def rows(self, target: Target) -> Iterator[Row]:
        if target.shape is Shape.FILE:
            yield from self._file(target.disk, target.path, next_base=None)
        elif target.shape is Shape.PARTITION:
            yield from self._partition(target.disk, target.path)
        else:
            for name in sorted(target.disk.listdir("")):
                if is_folder(target.disk, name):
                    if _is_partitions(name):
                        yield from self._partition(target.disk, name)
                elif is_known_file(name):
                    yield from self._file(target.disk, name, next_base=None)

    def _partition(self, disk: Disk, folder: str) -> Iterator[Row]:
        try:
            listed = sorted(name for name in disk.listdir(folder) if is_known_file(name))
        except OSError as error:
            yield {"type": "problem", "path": folder, "what": error.strerror or str(error)}
            return
        bases = [base for name in listed if name.endswith(names.LOG) and (base := log_file_base(name)) is not None]
        for name in listed:
            base = log_file_base(name)
            later = next((other for other in bases if base is not None and other > base), None)
            yield from self._file(disk, f"{folder}/{name}", later if name.endswith(names.LOG) else None)

    def _file(self, disk: Disk, path: str, next_base: int | None) -> Iterator[Row]:
        if self._full or (self._options.only and _kind_of(path) not in self._options.only):
            return
        begin = self._options.offset
        if begin is not None and next_base is not None and next_base <= begin:
            return
        try:
            for row in self._content(disk, path, next_base):
                yield {"type": row.pop("type"), "path": path, **row}
        except CorruptLogError as error:
            yield {"type": "problem", "path": path, "what": str(error)}
        except OSError as error:
            yield {"type": "problem", "path": path, "what": error.strerror or str(error)}

    def _content(self, disk: Disk, path: str, next_base: int | None) -> Iterator[Row]:
        name = path.rpartition("/")[2]
        base = log_file_base(name)
        if base is None:
            yield from _small_file(disk, path, name)
            return
        parsed = names.parse_partition_folder(path.partition("/")[0].partition(".")[0])
        decoder = decoder_for(parsed[0] if parsed else "", self._options.decoder)
        file = disk.open_read(path)
        try:
            if name.endswith(".checkpoint"):
                # A metadata snapshot is named by its end offset; the offsets in it start at 0.
                base = 0
            yield from self._log(file, base, next_base, self._start(disk, path, file, base), decoder)
        finally:
            file.close()

    # -- records

    def _start(self, disk: Disk, path: str, file: File, base: int) -> int:
        """The position to start at for the offset: from the index if that leads to a batch, otherwise 0."""
        offset = self._options.offset
        if offset is None or not path.endswith(names.LOG):
            return 0
        try:
            index = OffsetIndex.from_bytes(read_small(disk, path.removesuffix(names.LOG) + names.INDEX))
        except (CorruptLogError, FileNotFoundError):
            return 0
        position = index.position_before(offset - base)
        if not 0 < position < file.size:
            return 0
        found = next(walk(file, file.size, base, start=position))
        return position if isinstance(found, Batch) and found.header.base_offset <= offset else 0

    def _log(self, file: File, base: int, next_base: int | None, start: int, decoder: Decoder | None) -> Iterator[Row]:
        options = self._options
        for piece in walk(file, file.size, base, next_base, start):
            if isinstance(piece, Damage):
                yield _damage_row(piece)
                continue
            position, header, data = piece
            if options.offset is not None and header.last_offset < options.offset:
                continue
            if options.batches:
                yield {"type": "batch", **_batch_row(position, header)}
            if options.records and data is not None:
                yield from self._records(piece, decoder)
            self._batches += 1
            self._bytes += header.size_in_bytes
            if self._batches == options.max_batches or (options.max_bytes and self._bytes >= options.max_bytes):
                self._full = True
                return

    def _records(self, batch: Batch, decoder: Decoder | None) -> Iterator[Row]:
        assert batch.data is not None, "the caller has looked"
        try:
            for record in iter_records(batch.data):
                if self._options.offset is None or record.offset >= self._options.offset:
                    yield self._record_row(record, batch.header, decoder)
        except InvalidBatch as error:
            yield {"type": "problem", "position": batch.position, "what": error.message}

    def _record_row(self, record: Record, header: BatchHeader, decoder: Decoder | None) -> Row:
        row: Row = {"type": "record", "offset": record.offset, "timestamp_ms": record.timestamp}
        decoded: dict[str, object] = {}
        try:
            if header.is_control:
                decoded["decoded_value"] = decode_control(record)
            elif decoder is not None:
                key, value = decoder(record)
                decoded = {"decoded_key": key, "decoded_value": value}
        except NOT_DECODED as error:
            decoded = {"not_decoded": str(error)}
        if "decoded_value" in decoded:
            return {**row, **decoded, "tombstone": record.value is None}
        most = self._options.max_value_bytes
        row |= bytes_fields("key", record.key, most)
        row |= bytes_fields("value", record.value, most)
        row["headers"] = [{"name": name, **bytes_fields("value", value, most)} for name, value in record.headers]
        return {**row, **decoded}


def _is_partitions(name: str) -> bool:
    return (
        names.parse_partition_folder(name) is not None or names.is_deleted_folder(name) or names.is_stray_folder(name)
    )


def _kind_of(path: str) -> str:
    name = path.rpartition("/")[2]
    if log_file_base(name) is not None:
        return "log"
    parsed = names.parse_offset_name(name)
    return "small" if parsed is None else parsed[1].split(".")[1]


def _batch_row(position: int, header: BatchHeader) -> Row:
    codec = header.compression
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "size_bytes": header.size_in_bytes,
        "position": position,
        "crc": header.crc,
        "codec": CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"unknown ({codec})",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "timestamp_type": _TIMESTAMP_TYPES[header.timestamp_type],
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "delete_horizon_ms": header.delete_horizon_ms,
        "problem": None,
    }


def _damage_row(damage: Damage) -> Row:
    if damage.header is not None and damage.end - damage.position == damage.header.size_in_bytes:
        return {"type": "batch", **_batch_row(damage.position, damage.header), "problem": damage.what}
    return {
        "type": "damage",
        "position": damage.position,
        "end_position": damage.end,
        "size_bytes": damage.end - damage.position,
        "what": damage.what,
    }


# -- everything else


def _small_file(disk: Disk, path: str, name: str) -> Iterator[Row]:
    parsed = names.parse_offset_name(name)
    suffix = "" if parsed is None else f".{parsed[1].split('.')[1]}"
    if parsed is not None and suffix in (names.INDEX, names.TIME_INDEX):
        yield from _index(disk, path, parsed[0], suffix)
    elif suffix == names.TXN_INDEX:
        for aborted in decode_aborted(read_small(disk, path)):
            yield {"type": "aborted_transaction", **aborted._asdict()}
    elif suffix == names.SNAPSHOT:
        for producer in decode_snapshot(read_small(disk, path)):
            last = producer.batches[-1] if producer.batches else None
            yield {
                "type": "producer",
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "coordinator_epoch": producer.coordinator_epoch,
                "last_timestamp_ms": producer.last_timestamp_ms,
                "first_sequence": last.first_sequence if last else None,
                "last_sequence": last.last_sequence if last else None,
                "first_offset": last.first_offset if last else None,
                "last_offset": last.last_offset if last else None,
                "current_transaction_first_offset": producer.txn_first_offset,
            }
    elif name in CHECKPOINTS:
        for (topic, partition), offset in decode_offsets(read_small(disk, path)).items():
            yield {"type": "checkpoint", "topic": topic, "partition": partition, "offset": offset}
    elif name == names.LEADER_EPOCH_CHECKPOINT:
        for epoch, start_offset in decode_epochs(read_small(disk, path)):
            yield {"type": "leader_epoch", "epoch": epoch, "start_offset": start_offset}
    elif name == names.PARTITION_METADATA:
        topic_id = decode_partition_metadata(read_small(disk, path))
        yield {"type": "partition_metadata", "topic_id": uuid_to_text(topic_id)}
    elif name == names.META_PROPERTIES:
        meta = MetaProperties.decode(read_small(disk, path))
        yield {
            "type": "meta_properties",
            "cluster_id": meta.cluster_id,
            "node_id": meta.node_id,
            "directory_id": uuid_to_text(meta.directory_id),
        }
    elif name == names.CLEAN_SHUTDOWN:
        yield {"type": "clean_shutdown", "content": read_small(disk, path)[:1000].decode(errors="replace")}


def _index(disk: Disk, path: str, base: int, suffix: str) -> Iterator[Row]:
    file = disk.open_read(path)
    try:
        if suffix == names.INDEX:
            for number, (relative, position) in enumerate(index_entries(file)):
                if relative or position or not number:
                    yield {"type": "index_entry", "offset": base + relative, "position": position}
        else:
            for number, (timestamp, relative) in enumerate(time_index_entries(file)):
                if relative or timestamp or not number:
                    yield {"type": "time_index_entry", "timestamp_ms": timestamp, "offset": base + relative}
    finally:
        file.close()
