"""Carries out AlterReplicaLogDirs: copies logs to other folders while they are served, and swaps them in.

One move at a time, in pieces. Choosing a piece and the swap run in the event loop, copying in a worker thread. After
each piece the copier pauses for as long as the piece took, so that producers and consumers get their share of the disk,
and for as long as replica.alter.log.dirs.io.max.bytes.per.second is exceeded.

A move that a stop or a crash interrupted starts over at the next start, which finds the copy's folder. A move that was
already decided is completed then (`kwire_storage.directory.moving`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid
from kwire_storage.directory.folder_files import read_topic_id
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.directory.log_dirs import LogDirs
from kwire_storage.directory.moving import LogMove, SwapFailedError, finish_interrupted, remove_unfinished
from kwire_storage.errors import CorruptLogError, is_passing

from kwire.metadata.controller.partitions.placement import move_replicas
from kwire.metadata.image import TopicImage
from kwire.metadata.service import MetadataService
from kwire.replicas.partition import Partition
from kwire.replicas.quotas import ReplicationQuota
from kwire.replicas.roles import Absent, NotLeaderError
from kwire.replicas.table import PartitionTable
from kwire.runtime import workers
from kwire.runtime.clock import Clock
from kwire.runtime.service import Service
from kwire.runtime.tasks import in_this_task
from kwire.runtime.workers import Worker

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
FINAL_BYTES = 64 << 10
"""The maximum number of bytes left to copy before the swap, since they are copied in the event loop. It doubles each
time that a busy producer is faster."""
MOST_ROUNDS = 8
CLEANING_POLL_S = 0.1
LONGEST_REST_S = 1.0
"""The longest pause of a throttled copy, since the throttle may be changed meanwhile."""

Key = tuple[str, int]


class LogMoves(Service):
    """The requested moves, by topic and partition."""

    def __init__(self, log_dirs: LogDirs, partitions: PartitionTable, metadata: MetadataService, clock: Clock) -> None:
        self._folders = log_dirs
        self._partitions = partitions
        self._metadata = metadata
        self._clock = clock
        self._moves: dict[Key, LogMove] = {}
        self._dropped: list[LogMove] = []
        """Moves that were given up, with the copy still to be removed: a thread may be busy with it."""
        self._wake = trio.Event()
        config = metadata.config
        self._quota = ReplicationQuota(
            lambda: metadata.config.replica_alter_log_dirs_io_max_bytes_per_second,
            config.alter_log_dirs_replication_quota_window_num,
            config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        )

    # -- at the start

    def finish_interrupted(self) -> None:
        """Swaps in, before logs are opened, copies that the metadata names as moved, if no other folder has the log."""
        for folder, key, topic in self._copies():
            if topic is None or self._assigned(topic, key) != folder.meta.directory_id:
                continue
            if self._folders.find(*key) is None:
                self._on_disk(folder, partial(finish_interrupted, folder, key))

    def restart_interrupted(self) -> None:
        """Restarts, after logs are opened, moves that were not decided."""
        for folder, key, topic in self._copies():
            source = self._folders.find(*key)
            if topic is not None and (source is None or source.failed is not None):
                continue  # The copy may be the only one left.
            self._on_disk(folder, partial(remove_unfinished, folder, key, self._clock.uuid()))
            # Of two copies one had been given up; it is not recorded which.
            is_wanted = topic is not None and source is not folder and key not in self._moves
            if is_wanted and folder.failed is None:
                log.info("restarting the move of %s-%d to %s", *key, folder.path)
                self._begin_if_there_is_room(self._partitions.find(*key), folder)

    def _begin_if_there_is_room(self, partition: Partition, target: LogDir) -> None:
        """Begins a move. A full disk ends only this move, as it does during a move."""
        try:
            self._begin(partition, target)
        except OSError as error:
            if is_passing(error):
                log.warning("%s-%d is not moved to %s: %s", partition.topic, partition.index, target.path, error)
            else:
                target.on_failed(target, error)

    def _copies(self) -> list[tuple[LogDir, Key, TopicImage | None]]:
        """The copies that were growing at the last stop, each with its topic, unless the topic has been replaced."""
        found: list[tuple[LogDir, Key, TopicImage | None]] = []
        for folder in self._folders.online:
            for key, path in list(folder.futures.items()):
                topic = self._metadata.topic(key[0])
                if topic is not None and (
                    key[1] >= len(topic.partitions) or read_topic_id(folder.disk, path) not in (topic.topic_id, None)
                ):
                    topic = None
                found.append((folder, key, topic))
        return found

    def _assigned(self, topic: TopicImage, key: Key) -> bytes:
        return topic.partitions[key[1]].directory_of(self._metadata.node_id)

    @staticmethod
    def _on_disk(folder: LogDir, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            if is_passing(error):
                raise
            folder.on_failed(folder, error)

    # -- requests

    def find(self, topic: str, index: int) -> LogMove | None:
        return self._moves.get((topic, index))

    @property
    def moves(self) -> list[LogMove]:
        return list(self._moves.values())

    def request(self, topic: str, index: int, path: str) -> None:
        """Moves the partition to the folder with that path. A move to its current folder cancels the present move.

        Raises KafkaError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE,
        INVALID_TOPIC_EXCEPTION (its name is too long for the name of a copy).
        """
        target = self._folders.with_path(path)
        if target is None and path not in self._folders.offline:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)
        if target is None or target.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        try:
            partition = self._partitions.find(topic, index)
        except NotLeaderError as error:  # Kafka's code for a replica that is on other brokers
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE) from error
        source = self._partitions.folder_of(partition)
        if source is None or source.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        under_way = self._moves.get((topic, index))
        if under_way is not None and under_way.target_folder is not target:
            self._give_up(under_way, "another folder was requested")
            under_way = None
        if under_way is None and source is not target:
            try:
                self._begin(partition, target)
            except OSError as error:
                if not is_passing(error):
                    target.on_failed(target, error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error

    def _begin(self, partition: Partition, target: LogDir) -> None:
        source = self._partitions.folder_of(partition)
        assert source is not None, "who asks has looked"
        key = partition.topic, partition.index
        self._moves[key] = LogMove.begin(
            key, partition.topic_id, source, target, unique=self._clock.uuid(), now_ms=self._clock.now_ms()
        )
        self._wake.set()

    def topic_deleted(self, topic: str, topic_id: Uuid) -> None:  # noqa: ARG002
        for move in self.moves:
            if move.key[0] == topic:
                self._give_up(move, "the topic was deleted")

    def role_changed(self, topic: str, index: int) -> None:
        if isinstance(self._partitions.by_name[topic][index], Absent):
            self.forget_partition((topic, index), "this broker has no replica of it any more")

    def partitions_failed(self, partitions: Collection[Key]) -> None:
        for key in partitions:
            self.forget_partition(key, "the partition is out of service")

    def forget_partition(self, key: Key, why: str) -> None:
        """Ends the move of a partition, which is out of service."""
        move = self._moves.get(key)
        if move is not None:
            self._give_up(move, why)

    def forget_folder(self, folder: LogDir) -> None:
        """Ends the moves from and to a folder, which is out of service."""
        for move in self.moves:
            if folder in (move.source_folder, move.target_folder):
                self._give_up(move, f"{folder.path} is out of service")

    def close(self) -> None:
        """Closes the copies, which the next start begins again. Copies that were given up are removed now."""
        for move in self._moves.values():
            move.close()
        for move in self._dropped:
            self._on_disk(move.target_folder, partial(move.drop, self._clock.uuid()))

    def _give_up(self, move: LogMove, why: str) -> None:
        del self._moves[move.key]
        self._dropped.append(move)
        log.warning("%s-%d is not moved to %s: %s", *move.key, move.target_folder.path, why)
        self._wake.set()

    # -- carrying them out

    async def run(self) -> None:
        """Runs until cancelled, then waits for the piece that is being copied."""
        while True:
            self._wake = trio.Event()
            await self._remove_dropped()
            if self._moves:
                await self._carry_out(next(iter(self._moves.values())))
            else:
                await self._wake.wait()

    async def _remove_dropped(self) -> None:
        while self._dropped:
            move = self._dropped.pop()
            self._on_disk(move.target_folder, partial(move.drop, self._clock.uuid()))
            await trio.lowlevel.checkpoint()

    async def _carry_out(self, move: LogMove) -> None:
        is_decided = False
        try:
            # The copy must be compacted up to the log's cleaned offset, and the files must not change, so the cleaner
            # skips a log during its move.
            while self._partitions.find(*move.key).is_cleaning and self._is_under_way(move):
                await trio.sleep(CLEANING_POLL_S)
            rounds = 0
            while not await self._copy(move, FINAL_BYTES << rounds):
                rounds = min(rounds + 1, MOST_ROUNDS)
            if self._is_under_way(move):
                await in_this_task(self._assign(move, move.target_folder))
                is_decided = True
            if self._is_under_way(move):
                self._swap(move)
        except SwapFailedError as error:
            del self._moves[move.key]
            self._partitions.take_partition_offline(self._partitions.find(*move.key))
            if is_passing(error):
                log.error(
                    "%s-%d is out of service and answers KAFKA_STORAGE_ERROR until the next start, which ends its move "
                    "to %s: %s",
                    *move.key,
                    move.target_folder.path,
                    error,
                )
            else:
                move.failed_folder.on_failed(move.failed_folder, error)
        except (OSError, CorruptLogError, KafkaError) as error:
            if not self._is_under_way(move):
                return
            if is_decided:
                await self._take_back(move)
            if isinstance(error, OSError) and move.failed_folder.is_mistake(error):
                log.error("moving %s-%d: a bug in kwire, please report it", *move.key, exc_info=error)
                self._give_up(move, str(error))
            elif isinstance(error, OSError) and not is_passing(error):
                move.failed_folder.on_failed(move.failed_folder, error)  # which ends the move
            else:
                self._give_up(move, str(error))

    async def _copy(self, move: LogMove, final_bytes: int) -> bool:
        """Returns True when at most `final_bytes` are left, so that it can be swapped, or when the move has ended."""
        while self._is_under_way(move):
            piece = move.next_piece(min(PIECE_BYTES, self._quota.limit()))
            if piece is None:
                break
            began = trio.current_time()
            await workers.run(Worker.MOVE, partial(move.append, piece, now_ms=self._clock.now_ms()))
            self._quota.record(piece.batches.size, self._clock.monotonic_ms())
            await trio.sleep(trio.current_time() - began)
            while self._is_under_way(move) and self._quota.is_exceeded(now_ms := self._clock.monotonic_ms()):
                await trio.sleep(min((self._quota.free_at_ms() - now_ms) / 1000, LONGEST_REST_S))
        if not self._is_under_way(move):
            return True
        await workers.run(Worker.MOVE, move.prepare)
        left = move.next_piece(final_bytes + 1) if self._is_under_way(move) else None
        return left is None or left.batches.size <= final_bytes

    def _is_under_way(self, move: LogMove) -> bool:
        return self._moves.get(move.key) is move

    async def _take_back(self, move: LogMove) -> None:
        """Records that the partition stays in the source. If that fails, the next start records it."""
        try:
            await in_this_task(self._assign(move, move.source_folder))
        except KafkaError as error:
            log.error("cannot record that %s-%d has stayed in %s: %s", *move.key, move.source_folder.path, error)

    async def _assign(self, move: LogMove, folder: LogDir) -> None:
        """Records in the metadata that this folder has the partition. Raises KafkaError."""
        partition = self._partitions.find(*move.key)
        directories = {(partition.topic_id, partition.index): folder.meta.directory_id}
        await self._metadata.change(move_replicas, directories)

    def _swap(self, move: LogMove) -> None:
        """Swaps the copy in, soon after `_copy`: first copies the batches appended in between."""
        partition = self._partitions.find(*move.key)
        target = move.target_folder
        moved = move.finish(max_bytes=PIECE_BYTES, unique=self._clock.uuid(), now_ms=self._clock.now_ms())
        partition.replace_log(moved)
        del self._moves[move.key]
        log.info("moved %s-%d from %s to %s", *move.key, move.source_folder.path, target.path)
