"""A broker: its services, put together. Synchronous; `running.py` and `server.py` give it a clock to live by."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
from kwire_protocol.wire import uuid_to_text
from kwire_storage.config import LogConfig
from kwire_storage.data_folder import DataFolder
from kwire_storage.files import Disk

from kwire.clock import Clock
from kwire.config import ServerConfig
from kwire.context import Context
from kwire.disk_room import DiskRoom
from kwire.fetch_sessions import FetchSessions
from kwire.flusher import Flusher
from kwire.groups.service import GroupService
from kwire.internal_topic import InternalTopic
from kwire.metadata.image import Changes, ResourceType
from kwire.metadata.log import METADATA_TOPIC, METADATA_TOPIC_ID, FileMetadataLog
from kwire.metadata.service import MetadataService
from kwire.metadata.topic_names import CONSUMER_OFFSETS
from kwire.partitions import PartitionTable

log = logging.getLogger(__name__)

METADATA_LOG_CONFIG = LogConfig(retention_ms=-1, retention_bytes=-1, synced_one_by_one=True)
"""The metadata log is the cluster's memory: nothing of it goes by age or size."""


def _nobody() -> None: ...


@attrs.frozen
class NodeEndpoint:
    """Where a client finds a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


@attrs.define(eq=False)
class Broker:
    """One node of a cluster; for now the only one. Create it with `Broker.open`."""

    clock: Clock
    folder: DataFolder
    metadata: MetadataService
    partitions: PartitionTable
    flusher: Flusher
    groups: GroupService
    fetch_sessions: FetchSessions
    room: DiskRoom
    fatal: str | None = None
    """Why the broker cannot go on, once it cannot."""
    on_fatal: Callable[[], None] = _nobody
    """Called when `fatal` is set: whoever runs the broker stops it."""

    @classmethod
    def open(cls, config: ServerConfig, disk: Disk, clock: Clock) -> Broker:
        """Opens the data on `disk`, and makes it ready if it is new.

        Raises FolderLockedError, StorageError, CorruptLogError.
        """
        folder = DataFolder.open(
            disk,
            cluster_id=config.cluster_id or uuid_to_text(clock.uuid()),
            node_id=config.node_id,
            directory_id=clock.uuid(),
            path=config.log_dir,
            draw=clock.draw,
            reserve_bytes=config.kwire_log_reserve_bytes,
        )
        try:
            return cls._open(config, folder, clock)
        except BaseException:
            folder.abandon()
            raise

    @classmethod
    def _open(cls, config: ServerConfig, folder: DataFolder, clock: Clock) -> Broker:
        if (METADATA_TOPIC, 0) in folder.found:
            metadata_log = folder.open_log(METADATA_TOPIC, 0, METADATA_LOG_CONFIG, now_ms=clock.now_ms())
        else:
            metadata_log = folder.create_log(
                METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG_CONFIG, now_ms=clock.now_ms()
            )
        metadata = MetadataService.open(
            config,
            cluster_id=folder.meta.cluster_id,
            directory_id=folder.meta.directory_id,
            log=FileMetadataLog(metadata_log, config.node_id, clock.now_ms),
            clock=clock,
            check_room=folder.reserve.check_new,
        )
        flusher = Flusher()
        partitions = PartitionTable(
            config.node_id, folder, clock, metadata.topic_values, config.producer_id_expiration_ms, flusher
        )
        partitions.apply(Changes(topics_created=list(metadata.image.topics.values())))
        partitions.set_strays_aside()
        offsets = InternalTopic(CONSUMER_OFFSETS, partitions, clock, metadata.create_topic_by_itself)
        broker = cls(
            clock=clock,
            folder=folder,
            metadata=metadata,
            partitions=partitions,
            flusher=flusher,
            groups=GroupService(config, offsets, clock),
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots,
                lambda: int.from_bytes(clock.uuid()[:4], "big") & 0x7FFFFFFF,
            ),
            room=DiskRoom(folder.path, folder.reserve),
        )
        broker.room.watch()
        metadata.watch(broker._follow)
        folder.on_failed = broker.take_offline
        metadata.begin_epochs_behind(partitions.epochs_ahead())
        return broker

    @property
    def config(self) -> ServerConfig:
        """The configuration in force, changes made while running included."""
        return self.metadata.config

    def endpoints(self, context: Context) -> list[NodeEndpoint]:
        """Every broker's address for the client behind `context`: as advertised on the listener it came by.

        Where nothing is advertised this node is found at the address that the client dialled.
        """
        return [
            NodeEndpoint(self.config.node_id, context.local_host, context.local_port, self.config.broker_rack)
            if broker.broker_id == self.config.node_id and not self.config.advertised_listeners
            else NodeEndpoint(
                broker.broker_id,
                broker.endpoints[context.listener_name].host,
                broker.endpoints[context.listener_name].port,
                broker.rack,
            )
            for broker in self.metadata.image.live_brokers()
            if context.listener_name in broker.endpoints
        ]

    def take_checkpoints(self) -> dict[str, dict[tuple[str, int], int]]:
        """What the checkpoint files should say and do not say yet, by file; for `folder.write`.

        The high watermark of a partition that has no other replica is found again from its log, so while the broker
        runs it is not worth a sync.
        """
        replicated = {(it.topic, it.index): it.high_watermark for it in self.partitions if len(it.replicas) > 1}
        return self.folder.take_checkpoints(replicated)

    def take_offline(self, folder: DataFolder, error: OSError) -> None:
        """The disk of a log folder has failed: its partitions answer KAFKA_STORAGE_ERROR until the broker is restarted.

        Nothing of the folder is written any more. Without the metadata log, or any folder at all, the broker ends
        (`fatal`). A second failure of the same folder changes nothing.
        """
        if folder.failed is not None:
            return
        folder.fail(error)
        closed = self.partitions.take_offline(folder)
        log.critical(
            "the log folder %s is out of service: %s; its %d partitions answer KAFKA_STORAGE_ERROR. "
            "Look after the disk, then restart the broker: it checks what is there before it serves it",
            folder.path,
            error,
            len(closed),
        )
        self.groups.forget_partitions(it.index for it in closed if it.topic == CONSUMER_OFFSETS)
        if (METADATA_TOPIC, 0) in folder.logs:
            self._end(f"the log folder {folder.path}, which has the metadata log, is out of service: {error}")

    def _end(self, reason: str) -> None:
        if self.fatal is None:
            self.fatal = reason
            self.on_fatal()

    def close(self, run_all: Callable[[list[Callable[[], None]]], None] | None = None) -> None:
        """Stops cleanly: the next start need not look into the logs. Raises StorageError.

        `run_all` may do the syncs it is given side by side; see `DataFolder.close`.
        """
        if run_all is None:
            self.folder.close(self._high_watermarks())
        else:
            self.folder.close(self._high_watermarks(), run_all=run_all)

    def _high_watermarks(self) -> dict[tuple[str, int], int]:
        return {(it.topic, it.index): it.high_watermark for it in self.partitions}

    def _follow(self, changes: Changes) -> None:
        self.partitions.apply(changes)
        if any(resource == ResourceType.BROKER for resource, _ in changes.configs):
            self.partitions.reconfigure(self.partitions.by_name)
        else:
            self.partitions.reconfigure(name for resource, name in changes.configs if resource == ResourceType.TOPIC)
        for topic in changes.topics_deleted:
            self.groups.forget_topic(topic.name, topic.topic_id)
