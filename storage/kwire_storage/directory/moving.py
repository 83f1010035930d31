"""Moves a log from one log dir to another while it is served (KIP-113).

The copy grows in `topic-partition.<32 hex digits>-future` of the target: `next_piece` returns missing batches and
`append` copies them, until none are left; `prepare` makes the copy durable; `finish` swaps. Only `append` and `prepare`
take long, and may run in a worker thread; the rest belongs to the thread that appends to the source. The copy is used
by one thread at a time (`SoleUse`) and shares nothing with other logs: it has its own open files. Other threads may
only read `copied_bytes` and `lag`, which are as of the last `next_piece`.

Until the source is gone, a crash leaves the source, and the copy starts over:

1. The copy is nearly complete, and durable.
2. The metadata has, durably, the partition in the target. Appends still go to the source.
3. `finish`: the records appended since are copied, and the copy is durable: records, names, indexes, producers; and the
   log start is in the target's checkpoints.
4. The source's folder is renamed for removal, durably, so that there are never two with one name. From here on a crash
  leaves the copy, and `finish_interrupted`, which reads the metadata, makes it the partition.
5. The copy's folder takes the partition's name.
"""

from __future__ import annotations

import errno

import attrs
from kwire_protocol.records import InvalidBatch, check_batch, iter_headers

from kwire_storage import names
from kwire_storage.checkpoints import TopicPartition
from kwire_storage.directory.folder_files import write_topic_id
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.open_files import OpenFiles
from kwire_storage.disk.ownership import SoleUse
from kwire_storage.errors import CorruptLogError, StorageError
from kwire_storage.log.environment import LogEnvironment
from kwire_storage.log.log import Log
from kwire_storage.log.slices import LogSlice

_OPEN_FILES = 2
"""The limit of open files of a copy: it is written segment by segment."""


class SwapFailedError(StorageError):
    """The move is decided, but its folders could not be renamed: the next start does it."""


@attrs.frozen
class Piece:
    """Batches that the copy lacks; with `restart_at` the copy is emptied first and continues at that offset."""

    batches: LogSlice
    restart_at: int | None = None


@attrs.define(eq=False)
class LogMove:
    """See the module; create one with `LogMove.begin`."""

    key: TopicPartition
    source_folder: LogDir
    source: Log
    target_folder: LogDir
    path: str
    copy: Log
    copied_bytes: int = 0
    failed_folder: LogDir = attrs.field(init=False)
    """The folder whose disk failed, when an OSError was raised."""
    _copied_to: int = 0
    _appended_bytes: int = 0
    _is_new: bool = True
    _turn: SoleUse = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.failed_folder = self.target_folder
        self._turn = SoleUse(self.path)

    @classmethod
    def begin(
        cls,
        key: TopicPartition,
        topic_id: bytes,
        source_folder: LogDir,
        target_folder: LogDir,
        *,
        unique: bytes,
        now_ms: int,
    ) -> LogMove:
        """Makes the folder that the copy grows in; `unique` has 16 bytes.

        Raises OSError, and ValueError for a topic whose name is too long for that folder.
        """
        source = source_folder.logs[key]
        path = names.future_folder(names.partition_folder(*key), unique)
        disk = target_folder.disk

        def make_folder() -> list[str]:
            disk.mkdir(path)
            return [write_topic_id(disk, path, topic_id)]

        target_folder.reserve.check()
        copy = Log.open(
            disk,
            path,
            source.config,
            now_ms=now_ms,
            clean_shutdown=True,
            environment=LogEnvironment(open_files=OpenFiles(_OPEN_FILES)),
            make_folder=make_folder,
        )
        target_folder.futures[key] = path
        return cls(key, source_folder, source, target_folder, path, copy)

    @property
    def lag(self) -> int:
        """The number of offsets that the copy is behind."""
        return max(self.source.log_end_offset - self._copied_to, 0)

    def next_piece(self, max_bytes: int) -> Piece | None:
        """Returns the next missing, whole batches; None if the copy is complete. Raises OSError, CorruptLogError."""
        with self._turn:
            return self._next_piece(max_bytes)

    def _next_piece(self, max_bytes: int) -> Piece | None:
        self.target_folder.reserve.check()
        source, offset = self.source, self.copy.log_end_offset
        self._copied_to, self.copied_bytes = offset, self._appended_bytes
        # The records at the copy's end may be deleted by now (retention, DeleteRecords).
        is_lost = self._is_new or not source.log_start_offset <= offset <= source.log_end_offset
        if is_lost:
            offset = source.log_start_offset
        self.failed_folder = self.source_folder
        batches = source.read(offset, max_bytes=max_bytes, max_offset=source.log_end_offset)
        self.failed_folder = self.target_folder
        if is_lost:
            # The first batch may begin below the log start. It may also begin above, behind records that compaction
            # removed: the copy begins at the same offset.
            restart_at = min(batches.base_offset, offset) if batches.size else batches.base_offset
            return Piece(batches, restart_at)
        return Piece(batches) if batches.size else None

    def append(self, piece: Piece, *, now_ms: int) -> None:
        """Copies the piece, each batch checked. Raises OSError, CorruptLogError, KafkaError."""
        with self._turn:
            self._append(piece, now_ms)

    def _append(self, piece: Piece, now_ms: int) -> None:
        copy = self.copy
        if piece.restart_at is not None:
            copy.truncate_fully_and_start_at(piece.restart_at, now_ms=now_ms)
            self._is_new = False
        if not piece.batches.size:
            return
        self.failed_folder = self.source_folder
        data = piece.batches.read()
        self.failed_folder = self.target_folder
        if len(data) < piece.batches.size:
            raise CorruptLogError(
                f"{self.source.path} behind offset {piece.batches.base_offset}: the file has fewer bytes than its log "
                "knows of"
            )
        try:
            for position, header in iter_headers(memoryview(data)):
                check_batch(data, header, position)
        except InvalidBatch as error:
            raise CorruptLogError(f"{self.source.path} behind offset {piece.batches.base_offset}: {error}") from error
        copy.append_as_is(data, now_ms=now_ms)
        self._appended_bytes += len(data)

    def prepare(self) -> None:
        """Makes the copy durable as it is now. Raises OSError."""
        with self._turn:
            self.copy.run_flush(self.copy.begin_close())

    def finish(self, *, max_bytes: int, unique: bytes, now_ms: int) -> Log:
        """Copies the records still missing, swaps, and returns the log that is served from now on.

        The metadata must assign the partition to the target, durably, before that. Raises OSError, CorruptLogError:
        nothing has changed; SwapFailedError: the move is decided, although the swap failed.
        """
        while (piece := self.next_piece(max_bytes)) is not None:
            self.append(piece, now_ms=now_ms)
        with self._turn:
            return self._finish(unique, now_ms)

    def _finish(self, unique: bytes, now_ms: int) -> Log:
        source, copy = self.source, self.copy
        if copy.log_end_offset != source.log_end_offset:
            raise CorruptLogError(
                f"{copy.path} ends at {copy.log_end_offset}, {source.path} at {source.log_end_offset}"
            )
        copy.adopt(source)
        copy.close(clean=True)
        self.target_folder.announce(self.key, copy.checkpointed_log_start, source.checkpointed_cleaned_offset)
        copy.give_up_folder()
        self.failed_folder = self.source_folder
        try:
            _remove_source(self.source_folder, self.key, unique)
            self.failed_folder = self.target_folder
            _promote_future(self.target_folder, self.key)
            log = self.target_folder.open_log(*self.key, source.config, now_ms=now_ms, is_clean=True)
        except OSError as error:
            raise SwapFailedError.of(error, self.failed_folder.path) from error
        # The entry in the log dir is the one name that no later flush of the copy would include.
        log.durability.folder_unsynced = True
        log.cleaned_offset = source.cleaned_offset
        return log

    def close(self) -> None:
        """Closes the copy, which is left as it is."""
        with self._turn:
            self.copy.give_up_folder()

    def drop(self, unique: bytes) -> None:
        """Gives up the move, and removes the copy. Raises OSError."""
        self.close()
        if self.target_folder.futures.get(self.key) == self.path:
            del self.target_folder.futures[self.key]
        if self.target_folder.failed is None:
            self.target_folder.doom(self.path, unique)


def finish_interrupted(target: LogDir, key: TopicPartition) -> None:
    """Completes a move that was decided; for the start, before logs are opened. Raises OSError.

    A move is decided if the source no longer has the partition: before that the copy may lack its end.
    """
    _promote_future(target, key)


def remove_unfinished(target: LogDir, key: TopicPartition, unique: bytes) -> None:
    """Removes a copy that was not finished; for the start. Raises OSError."""
    target.doom(target.futures.pop(key), unique)


def _remove_source(folder: LogDir, key: TopicPartition, unique: bytes) -> None:
    folder.delete_log(*key, unique)
    folder.disk.sync_dir("")


def _promote_future(folder: LogDir, key: TopicPartition) -> None:
    if key in folder.partitions:
        raise StorageError(errno.EEXIST, "the partition has a folder already", names.partition_folder(*key))
    folder.take_in(key, folder.futures[key])
    del folder.futures[key]
