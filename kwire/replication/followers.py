"""The partitions that this node follows, each over a connection to its leader.

The metadata name them: every replica of this node that another node leads. A leader is followed over
num.replica.fetchers connections, and a partition always belongs to the same one of them, so that its records arrive in
order. A change of its role removes a partition from its old connection before it is added to a new one. The replica
itself refuses records that arrive in between: it checks the leader epoch of every append.

`run` also checks for followers of this node that are behind (`in_sync.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import attrs
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.errors import StorageError

from kwire.config.server import ServerConfig
from kwire.metadata.image import Changes, TopicImage
from kwire.metadata.service import MetadataService
from kwire.replicas.partition import Partition
from kwire.replicas.quotas import ReplicationQuota
from kwire.replicas.roles import NO_LEADER, Follower
from kwire.replicas.table import PartitionTable
from kwire.replication.connection import FetcherEnvironment, LeaderConnection
from kwire.replication.fetching import Fetcher, FetchSettings, PartitionKey
from kwire.replication.in_sync import InSyncReplicas
from kwire.runtime.callbacks import ignore

MIN_CHECK_INTERVAL_S = 0.01
"""The minimum interval of checks, since replica.lag.time.max.ms may be very small."""

ConnectionKey = tuple[int, int]
"""The leader's node id, and the number of the connection."""


def fetch_settings(config: ServerConfig) -> FetchSettings:
    return FetchSettings(
        max_bytes=config.replica_fetch_max_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        min_bytes=config.replica_fetch_min_bytes,
        max_wait_ms=config.replica_fetch_wait_max_ms,
        backoff_ms=config.replica_fetch_backoff_ms,
    )


@attrs.frozen(eq=False)
class FollowedPartition:
    """The replica of a fetcher (`FollowedLog`). A cut lowers the checkpoints first.

    `on_cut` is called with topic and index before a cut: copies of the log are no longer valid.
    """

    partition: Partition
    table: PartitionTable
    on_cut: Callable[[tuple[str, int]], None]

    @property
    def log_start_offset(self) -> int:
        return self.partition.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.partition.log.log_end_offset

    @property
    def is_gone(self) -> bool:
        return self.partition.closed

    @property
    def is_held(self) -> bool:
        return self.partition.is_held

    @property
    def is_throttled(self) -> bool:
        return self.partition.rules.throttled_followers.has(self.partition.index, self.table.node_id)

    @property
    def latest_epoch(self) -> int:
        return self.partition.log.leader_epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.partition.log.end_offset_for_epoch(epoch)

    def append_fetched(self, records: memoryview, *, leader_epoch: int) -> None:
        self.partition.append_fetched(records, leader_epoch=leader_epoch, now_ms=self.table.clock.now_ms())

    def follow_leader(self, *, leader_epoch: int, high_watermark: int, log_start_offset: int) -> None:
        self.partition.follow_leader(
            leader_epoch=leader_epoch,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            now_ms=self.table.clock.now_ms(),
        )

    def truncate(self, offset: int, *, leader_epoch: int) -> None:
        if offset < self.log_end_offset:
            self._lower_checkpoints(offset)
        self.partition.truncate(offset, leader_epoch=leader_epoch, now_ms=self.table.clock.now_ms())

    def start_afresh(self, offset: int, *, leader_epoch: int) -> None:
        self._lower_checkpoints(min(offset, self.log_end_offset))
        self.partition.start_afresh(offset, leader_epoch=leader_epoch, now_ms=self.table.clock.now_ms())

    def _lower_checkpoints(self, offset: int) -> None:
        folder = self.table.folder_of(self.partition)
        if folder is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is gone")
        key = self.partition.topic, self.partition.index
        self.on_cut(key)
        try:
            if folder.failed is not None:
                raise StorageError.of(folder.failed, folder.path)
            folder.lower_checkpoints(key, offset)
        except OSError as error:
            raise self.partition.storage_error(error) from error


@attrs.define(eq=False)
class ReplicaFollowers:
    """Follows, while it runs, every partition that this node must follow."""

    metadata: MetadataService
    partitions: PartitionTable
    in_sync: InSyncReplicas
    quota: ReplicationQuota
    around: FetcherEnvironment
    on_cut: Callable[[tuple[str, int]], None]
    _connections: dict[ConnectionKey, LeaderConnection] = attrs.field(factory=dict)
    _followed: dict[PartitionKey, tuple[ConnectionKey, Partition]] = attrs.field(factory=dict)
    _fetchers_per_leader: int = attrs.field(init=False)
    _is_running: bool = False

    def __attrs_post_init__(self) -> None:
        self._fetchers_per_leader = self.metadata.config.num_replica_fetchers

    async def run(self) -> None:
        """Runs as a task of the server until it is cancelled."""
        self._is_running = True
        self.metadata.watch(self._follow)
        try:
            self._reconcile(self.partitions)
            while True:
                await trio.sleep(max(self.metadata.config.replica_lag_time_max_ms / 2000, MIN_CHECK_INTERVAL_S))
                self.in_sync.reconcile(self.partitions, self.around.now_ms())
        finally:
            self._is_running = False
            for connection in self._connections.values():
                connection.close()

    def _follow(self, changes: Changes) -> None:
        if not self._is_running:
            return
        for topic in changes.topics_deleted:
            for index in range(len(topic.partitions)):
                self._leave((topic.topic_id, index))
        if changes.configs:
            self._take_settings()
        if changes.brokers or changes.configs:  # addresses, throttles
            for connection in self._connections.values():
                connection.poke()
        for topic in changes.topics_created:
            self._reconcile_topic(topic, range(len(topic.partitions)))
        for topic, index in (*changes.partitions_added, *changes.partitions_changed):
            self._reconcile_topic(topic, [index])

    def _take_settings(self) -> None:
        settings = fetch_settings(self.metadata.config)
        for connection in self._connections.values():
            connection.fetcher.settings = settings
        wanted = self.metadata.config.num_replica_fetchers
        if wanted != self._fetchers_per_leader:
            self._fetchers_per_leader = wanted
            self._reconcile(self.partitions)

    def _reconcile_topic(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        hosted_partitions = self.partitions.by_ref.get(topic.topic_id, [])
        for index in indexes:
            hosted = hosted_partitions[index] if index < len(hosted_partitions) else None
            if type(hosted) is Partition:
                self._reconcile([hosted])
            else:
                self._leave((topic.topic_id, index))

    def _reconcile(self, partitions: Iterable[Partition]) -> None:
        touched: set[ConnectionKey] = set()
        for partition in partitions:
            key = partition.topic_id, partition.index
            role = partition.role
            if type(role) is not Follower or role.leader_id == NO_LEADER:
                self._leave(key)
                continue
            number = (int.from_bytes(partition.topic_id[-4:], "big") + partition.index) % self._fetchers_per_leader
            wanted = role.leader_id, number
            known = self._followed.get(key)
            if known == (wanted, partition) and self._epoch_of(known[0], key) == role.leader_epoch:
                continue
            self._leave(key)
            connection = self._connection(wanted)
            connection.fetcher.follow(
                key,
                partition.topic,
                role.leader_epoch,
                FollowedPartition(partition, self.partitions, self.on_cut),
                partition.directory_id,
            )
            partition.on_durable = partial(self._release, connection, key)
            self._followed[key] = wanted, partition
            touched.add(wanted)
        for wanted in touched:
            self._connections[wanted].poke()

    def _epoch_of(self, connection: ConnectionKey, key: PartitionKey) -> int | None:
        return self._connections[connection].fetcher.epoch_of(key)

    def _connection(self, wanted: ConnectionKey) -> LeaderConnection:
        found = self._connections.get(wanted)
        if found is None:
            config = self.metadata.config
            registered = self.metadata.image.brokers[config.node_id]
            fetcher = Fetcher(wanted[0], config.node_id, registered.broker_epoch, fetch_settings(config), self.quota)
            found = self._connections[wanted] = LeaderConnection(fetcher, self.around)
        return found

    def _leave(self, key: PartitionKey) -> None:
        known = self._followed.pop(key, None)
        if known is None:
            return
        wanted, partition = known
        partition.on_durable = ignore
        connection = self._connections[wanted]
        connection.fetcher.forget(key)
        if not len(connection.fetcher):
            del self._connections[wanted]
            connection.close()

    @staticmethod
    def _release(connection: LeaderConnection, key: PartitionKey) -> None:
        connection.fetcher.release(key)
        connection.poke()
