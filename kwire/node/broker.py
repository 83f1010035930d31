"""A broker: its services, put together. It is synchronous; `running.py` and `network/server.py` run it on trio."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid, uuid_to_text
from kwire_storage import names
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.directory.log_dirs import LogDirs, has_owner
from kwire_storage.directory.openings import OpeningProgress
from kwire_storage.disk.files import Disk
from kwire_storage.errors import ForeignFolderError, StorageError, is_full, is_passing
from kwire_storage.log.log import Log

from kwire.cluster.member import ClusterMember
from kwire.cluster.membership import Membership
from kwire.cluster.nodes import Nodes
from kwire.cluster.service import ClusterService
from kwire.config.server import ServerConfig
from kwire.coordinators.internal_topic import InternalTopic
from kwire.groups.metadata_topics import MetadataTopics
from kwire.groups.service import GroupService
from kwire.groups.settings import GroupSettings
from kwire.handlers.authorization import Authorization
from kwire.logs.cleaner import LogCleaner
from kwire.logs.disk_room import DiskRoom
from kwire.logs.moves import LogMoves
from kwire.metadata.auto_topic_creation import AutoTopicCreation
from kwire.metadata.bootstrap import register_alone
from kwire.metadata.controller.deciding import Decision
from kwire.metadata.controller.partitions.leader_epochs import epochs_behind, next_epochs
from kwire.metadata.controller.partitions.placement import move_replicas
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.features import SHARE_VERSION
from kwire.metadata.image import Changes, ConfigResourceType, TopicImage
from kwire.metadata.log import (
    METADATA_LOG_CONFIG,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    FileMetadataLog,
    MetadataLog,
)
from kwire.metadata.service import MetadataService
from kwire.names.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kwire.node.housekeeping import Housekeeping
from kwire.peers.peers import Peers, peers_of
from kwire.quotas.client_quotas import ClientQuotas, concerns_clients
from kwire.quotas.rates import Window
from kwire.replicas.fetch_sessions import FetchSessions
from kwire.replicas.flusher import Flusher
from kwire.replicas.partition import Partition
from kwire.replicas.quotas import ReplicationQuota
from kwire.replicas.table import PartitionTable
from kwire.replication.in_sync import InSyncReplicas
from kwire.runtime.callbacks import ignore
from kwire.runtime.clock import Clock, running_ns
from kwire.runtime.futures import at_once, drive
from kwire.runtime.loop import Loop
from kwire.runtime.service import Service
from kwire.security.audit import Audited, AuditLog
from kwire.security.authorizer import AllowAll
from kwire.share.coordinator.persister import CoordinatorPersister, Persister
from kwire.share.coordinator.service import ShareStateService
from kwire.share.leader.counts import SharingCounts
from kwire.share.leader.dead_letters import DeadLetters
from kwire.share.leader.service import SharingService
from kwire.transactions.service import TransactionService

log = logging.getLogger(__name__)

RunAll = Callable[[list[Callable[[], None]], Callable[[], str], int], None]
"""Takes tasks, a function that describes the progress, and the maximum number of tasks to run concurrently."""


def _in_turn(tasks: list[Callable[[], None]], progress: Callable[[], str], threads: int) -> None:  # noqa: ARG001
    for task in tasks:
        task()


@attrs.define(eq=False)
class Broker:
    """One node of a cluster, which may be the only one. Create it with `Broker.open`."""

    clock: Clock
    loop: Loop
    log_dirs: LogDirs
    metadata: MetadataService
    nodes: Nodes
    auto_topic_creation: AutoTopicCreation
    partitions: PartitionTable
    in_sync: InSyncReplicas
    flusher: Flusher
    moves: LogMoves
    groups: GroupService
    transactions: TransactionService
    share_state: ShareStateService
    persister: Persister
    """The share coordinators of the whole cluster."""
    sharing: SharingService
    peers: Peers
    """The other brokers, for administrative requests."""
    all_peers: Sequence[Peers]
    """These, and those of all services: every connection to other brokers, except the fetchers'."""
    fetch_sessions: FetchSessions
    leader_quota: ReplicationQuota
    follower_quota: ReplicationQuota
    client_quotas: ClientQuotas
    cleaner: LogCleaner
    housekeeping: Housekeeping
    authorization: Authorization
    audit: AuditLog
    services: Sequence[Service]
    """The parts of the broker that follow what happens to it and have tasks, in the order in which they are called."""
    member: ClusterMember | None = None
    """Its part in a cluster of several nodes; None without one."""
    fatal: str | None = None
    """The reason why the broker cannot continue; None while it can."""
    on_fatal: Callable[[], None] = ignore
    """Called when `fatal` is set, so that the caller stops the broker."""

    @classmethod
    def open(
        cls,
        config: ServerConfig,
        disks: Disk | Mapping[str, Disk],
        clock: Clock,
        *,
        run_all: RunAll = _in_turn,
        membership: Membership | None = None,
        loop: Loop | None = None,
    ) -> Broker:
        """Opens the log dirs, and prepares new ones.

        With a `membership` the broker is a node of that cluster, and leaves it when it is closed or cannot be opened;
        `loop` is then the one that the membership uses. Without one it is a cluster of its own.

        `disks` maps each path in `config` to its disk; a single disk is for the only folder. After an unclean stop
        `run_all` runs one task per log that must be checked.
        Raises FolderLockedError, StorageError, CorruptLogError.
        """
        if not isinstance(disks, Mapping):
            config = attrs.evolve(config, log_dirs=config.log_dirs[:1], metadata_log_dir=config.log_dirs[0])
            disks = {config.log_dirs[0]: disks}
        try:
            return cls._open_folder(config, disks, clock, run_all, membership, loop or Loop())
        except BaseException:
            if membership is not None:
                membership.leave()
            raise

    @classmethod
    def _open_folder(
        cls,
        config: ServerConfig,
        disks: Mapping[str, Disk],
        clock: Clock,
        run_all: RunAll,
        membership: Membership | None,
        loop: Loop,
    ) -> Broker:
        metadata_path = config.metadata_log_dir
        if membership is None:
            _check_metadata_folder(config, disks)
            cluster_id = config.cluster_id or uuid_to_text(clock.uuid())
        else:
            cluster_id = membership.cluster_id
        folder = LogDir.open(
            disks[metadata_path],
            cluster_id=cluster_id,
            node_id=config.node_id,
            directory_id=clock.uuid(),
            path=metadata_path,
            draw=clock.draw,
            reserve_bytes=config.kwire_log_reserve_bytes,
        )
        try:
            if membership is None:
                _check_no_cluster(folder)
                metadata_log: MetadataLog = FileMetadataLog(
                    _embedded_log(folder, clock.now_ms()), config.node_id, clock.now_ms, loop
                )
            else:
                _check_cluster(folder, membership)
                metadata_log = membership.log
            return cls._open(config, disks, folder, metadata_log, clock, run_all, membership, loop)
        except BaseException:
            folder.abandon()
            raise

    @classmethod
    def _open(
        cls,
        config: ServerConfig,
        disks: Mapping[str, Disk],
        folder: LogDir,
        metadata_log: MetadataLog,
        clock: Clock,
        run_all: RunAll,
        membership: Membership | None,
        loop: Loop,
    ) -> Broker:
        metadata = MetadataService.open(
            config,
            cluster_id=folder.meta.cluster_id,
            log=metadata_log,
            clock=clock,
            check_room=folder.reserve.check_new,
            loop=loop,
        )
        log_dirs = LogDirs.open(
            {path: disks[path] for path in config.log_dirs},
            folder,
            known_ids=metadata.registered_log_dirs,
            new_id=clock.uuid,
            topic_id_of=metadata.topic_id,
            draw=clock.draw,
            reserve_bytes=config.kwire_log_reserve_bytes,
        )
        try:
            member = None if membership is None else ClusterMember(membership, metadata)
            return cls._assemble(config, metadata, log_dirs, clock, run_all, member)
        except BaseException:
            log_dirs.abandon()
            raise

    @classmethod
    def _assemble(
        cls,
        config: ServerConfig,
        metadata: MetadataService,
        log_dirs: LogDirs,
        clock: Clock,
        run_all: RunAll,
        member: ClusterMember | None,
    ) -> Broker:
        loop = metadata.loop
        metadata.is_alone = member is None
        _register(metadata, log_dirs, member)
        flusher = Flusher()
        metadata.choose_directories = log_dirs.choose
        in_sync = InSyncReplicas(metadata, lambda: metadata.config.replica_lag_time_max_ms)
        partitions = PartitionTable(
            config.node_id,
            log_dirs,
            clock,
            metadata.topic_values,
            lambda: metadata.config,
            flusher,
            loop,
            in_sync,
        )
        for folder in log_dirs:
            folder.on_failed = partitions.take_offline
            folder.on_log_failed = partitions.take_log_offline
        moves = LogMoves(log_dirs, partitions, metadata, clock)
        moves.finish_interrupted()
        _open_logs(metadata, partitions, run_all)
        if log_dirs.metadata.failed is not None:
            raise StorageError.of(log_dirs.metadata.failed, log_dirs.metadata.path)
        if not log_dirs.online:
            raise StorageError(errno.EIO, "no log dir is usable", ", ".join(config.log_dirs))
        offsets, transaction_state, share_group_state = (
            InternalTopic(name, partitions, clock, partial(metadata.change, auto_create_topic))
            for name in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
        )
        group_settings = GroupSettings(metadata)
        transactions = TransactionService(config, transaction_state, partitions, metadata, clock, loop)
        share_state = ShareStateService(config, share_group_state, partitions, metadata, clock, loop)
        for_states, for_letters, for_administration = (
            peers_of(metadata, loop, purpose) for purpose in ("share-states", "dead-letters", "administration")
        )
        persister = CoordinatorPersister(share_state, for_states, clock)
        groups = GroupService(
            config,
            offsets,
            clock,
            MetadataTopics(metadata),
            group_settings,
            persister,
            loop,
            partial(metadata.change, create_topics),
        )
        rooms = {folder.path: DiskRoom(folder.path, folder.reserve) for folder in log_dirs}
        for room in rooms.values():
            room.watch()
        nodes = Nodes(metadata, member)
        housekeeping = Housekeeping(
            metadata,
            log_dirs,
            partitions,
            clock,
            rooms,
            nodes,
        )
        cleaner = LogCleaner(metadata, partitions, log_dirs, moves, flusher, clock)
        audit = AuditLog(Audited(config.kwire_audit_log), config.kwire_audit_log_format == "json", clock.now_ms)
        sharing_counts = SharingCounts()
        sharing = SharingService(
            persister,
            group_settings,
            DeadLetters(metadata, partitions, group_settings, for_letters, clock, sharing_counts),
            clock,
            sharing_counts,
            max_sessions=config.group_share_max_share_sessions,
        )
        broker = cls(
            clock=clock,
            loop=loop,
            log_dirs=log_dirs,
            metadata=metadata,
            nodes=nodes,
            auto_topic_creation=AutoTopicCreation(metadata),
            partitions=partitions,
            in_sync=in_sync,
            flusher=flusher,
            moves=moves,
            groups=groups,
            transactions=transactions,
            share_state=share_state,
            persister=persister,
            sharing=sharing,
            # Transactions after groups: those that are decided are completed at once, also in the partitions of groups.
            services=(
                *(housekeeping, flusher, cleaner, moves, groups, transactions, share_state, sharing),
                *(() if member is None else (ClusterService(member, lambda reason: broker.end(reason)),)),
            ),
            peers=for_administration,
            all_peers=(*transactions.peers, for_states, for_letters, for_administration),
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots,
                lambda: int.from_bytes(clock.uuid()[:4], "big") & 0x7FFFFFFF,
            ),
            leader_quota=_replication_quota(config, lambda: metadata.config.leader_replication_throttled_rate),
            follower_quota=_replication_quota(config, lambda: metadata.config.follower_replication_throttled_rate),
            authorization=Authorization(AllowAll(), audit, metadata, partitions),
            audit=audit,
            client_quotas=ClientQuotas(
                Window.of(config.quota_window_num, config.quota_window_size_seconds),
                Window.of(config.controller_quota_window_num, config.controller_quota_window_size_seconds),
                running_ns,
            ),
            member=member,
            cleaner=cleaner,
            housekeeping=housekeeping,
        )
        if member is not None:
            member.on_replaced = broker.end
        metadata.follow = broker._follow
        if config.authorizer_class_name:
            broker._go_by_acls()
        broker.client_quotas.follow(metadata.image.access.quotas)
        metadata.watch(broker._follow_quotas)
        partitions.on_role, partitions.on_deleted = broker._role_changed, broker._topic_deleted
        metadata.writes_snapshots = True
        for folder in log_dirs:
            folder.on_failed = broker.take_offline
            folder.on_log_failed = broker.take_log_offline
        moves.begin_interrupted_anew()
        misplaced = partitions.misplaced(partitions.by_name)
        if misplaced:
            at_once(metadata.change(move_replicas, misplaced))
        if member is None:
            at_once(metadata.change(epochs_behind, partitions.epochs_ahead()))
            at_once(metadata.shorten_log())
        for service in broker.services:
            service.start()
        return broker

    @property
    def config(self) -> ServerConfig:
        """The current configuration, including changes made at run time."""
        return self.metadata.config

    def take_offline(self, folder: LogDir, error: OSError) -> None:
        """Handles a failed disk: the partitions of its log dir return KAFKA_STORAGE_ERROR until a restart.

        Nothing is written to the folder after that. If it has the metadata log, or is the last folder, the broker stops
        (`fatal`). In a cluster, other brokers lead the partitions of which they have replicas. A second failure of the
        same folder changes nothing.
        """
        if folder.failed is not None:
            return
        closed = self.partitions.take_offline(folder, error)
        self.moves.forget_folder(folder)
        self._unload(closed)
        if folder is self.log_dirs.metadata and self.member is None:
            self.end(f"the log dir {folder.path}, which has the metadata log, is out of service: {error}")
        elif not self.log_dirs.online:
            self.end(f"no log dir is left: the last one, {folder.path}, is out of service: {error}")

    def take_log_offline(self, folder: LogDir, key: tuple[str, int], error: OSError) -> None:
        """Handles unexpected files of one log, on a disk that works: takes its partition out of service.

        If it is the metadata log, the broker stops.
        """
        closed = self.partitions.take_log_offline(folder, key, error)
        if closed is not None:
            self._unload([closed])
        if key == (METADATA_TOPIC, 0):
            self.end(f"the metadata log in {folder.path} is out of service: {error}")

    def _unload(self, closed: list[Partition]) -> None:
        for service in self.services:
            service.partitions_failed([(it.topic, it.index) for it in closed])
        if self.member is not None and closed:
            self.member.give_up_replicas([(it.topic_id, it.index) for it in closed])

    def end(self, reason: str) -> None:
        """Stops the broker, because it cannot continue."""
        if self.fatal is None:
            self.fatal = reason
            self.on_fatal()

    def close(self, run_all: Callable[[list[Callable[[], None]]], None] | None = None) -> None:
        """Stops cleanly, so that the next start need not check the logs. Raises StorageError.

        `run_all` may run the fsyncs concurrently; see `LogDir.close`.
        """
        self.moves.close()
        self.metadata.stop_following()
        try:
            self.log_dirs.close(self._high_watermarks(), broker_epoch=self._broker_epoch, run_all=run_all)
        finally:
            if self.member is not None:
                self.member.leave()

    @property
    def _broker_epoch(self) -> int:
        if self.member is not None:
            return self.member.broker_epoch
        registered = self.metadata.image.brokers.get(self.config.node_id)
        return -1 if registered is None else registered.broker_epoch

    def abandon(self) -> None:
        """Releases everything as a kill of the process would; for tests."""
        self.log_dirs.abandon()
        if self.member is not None:
            self.member.membership.leave()

    def _high_watermarks(self) -> dict[tuple[str, int], int]:
        return {(it.topic, it.index): it.high_watermark for it in self.partitions}

    def _report_log_dirs(self, changes: Changes) -> None:
        """Records which log dirs this broker has chosen for replicas that another one has placed here (KIP-858)."""
        made = {topic.name for topic in changes.topics_created}
        made |= {topic.name for topic, _ in (*changes.partitions_added, *changes.partitions_changed)}
        misplaced = self.partitions.misplaced(made)
        if misplaced:
            drive(self._record_log_dirs(misplaced))

    async def _record_log_dirs(self, misplaced: Mapping[tuple[Uuid, int], Uuid]) -> None:
        try:
            await self.metadata.change(move_replicas, misplaced)
        except KafkaError as error:
            log.error("the log dirs of %d replicas cannot be recorded: %s", len(misplaced), error.message)

    async def _follow(self, changes: Changes) -> None:
        # First, because a smaller ISR must not meet an earlier min.insync.replicas: more would be committed than what
        # eligible replicas have.
        if any(resource == ConfigResourceType.BROKER for resource, _ in changes.configs):
            await self.partitions.reconfigure(list(self.partitions.by_name))
        else:
            await self.partitions.reconfigure(changes.configured_topics())
        try:
            await self.partitions.apply(changes)
        except OSError as error:
            if not is_passing(error):
                raise
            # The topic exists. Its clients try again until its logs exist, too.
            log.error("cannot make the logs of new partitions, and tries again within half a minute: %s", error)
        if changes.features and not self.metadata.feature_level(SHARE_VERSION):
            self.sharing.turn_off()
        if self.member is not None and len(self.log_dirs.dirs) > 1:
            self._report_log_dirs(changes)

    def _go_by_acls(self) -> None:
        """Makes the ACLs of the metadata decide what clients may do."""
        from kwire.security.acls.acl import Acl  # most brokers need neither
        from kwire.security.acls.standard_authorizer import StandardAuthorizer

        authorizer = StandardAuthorizer(self.config.super_users, self.config.allow_everyone_if_no_acl_found)
        authorizer.change(map(Acl.of_record, self.metadata.image.access.acls.values()), ())

        def follow(changes: Changes) -> None:
            added, removed = changes.access.acls_added, changes.access.acls_removed
            if added or removed:
                authorizer.change(map(Acl.of_record, added), map(Acl.of_record, removed))
                self.fetch_sessions.read_all_anew()

        self.authorization.authorizer = authorizer
        self.metadata.watch(follow)

    def _follow_quotas(self, changes: Changes) -> None:
        if any(concerns_clients(entity) for entity in changes.access.quotas):
            self.client_quotas.follow(self.metadata.image.access.quotas)

    def _role_changed(self, topic: str, index: int) -> None:
        for service in self.services:
            service.role_changed(topic, index)

    def _topic_deleted(self, topic: TopicImage) -> None:
        for service in self.services:
            service.topic_deleted(topic.name, topic.topic_id)


def _replication_quota(config: ServerConfig, limit: Callable[[], int]) -> ReplicationQuota:
    return ReplicationQuota(
        limit, config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000
    )


def _check_metadata_folder(config: ServerConfig, disks: Mapping[str, Disk]) -> None:
    """Raises StorageError if log.dirs was reordered: the broker would otherwise start empty beside its data."""
    path = config.metadata_log_dir
    if disks[path].exists(names.partition_folder(METADATA_TOPIC, 0)):
        return
    others = [other for other in config.log_dirs if other != path and has_owner(disks[other])]
    has_log = [other for other in others if disks[other].exists(names.partition_folder(METADATA_TOPIC, 0))]
    if others:
        where = f"{has_log[0]} has it: name that one" if has_log else "name the folder that has it"
        raise StorageError(
            errno.ENOENT,
            f"the metadata log is not here, although {others[0]} is a folder of this broker's; {where} first in "
            "log.dirs, or in metadata.log.dir",
            path,
        )


def _embedded_log(folder: LogDir, now_ms: int) -> Log:
    if (METADATA_TOPIC, 0) in folder.found:
        return folder.open_log(METADATA_TOPIC, 0, METADATA_LOG_CONFIG, now_ms=now_ms)
    return folder.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG_CONFIG, now_ms=now_ms)


def _check_no_cluster(folder: LogDir) -> None:
    """Raises StorageError for a folder of a cluster's node: its topics would all be unknown."""
    if folder.found and (METADATA_TOPIC, 0) not in folder.found:
        raise ForeignFolderError(
            errno.EPERM,
            f"the folder has {len(folder.found)} partitions and no metadata log: it belongs to node "
            f"{folder.meta.node_id} of cluster {folder.meta.cluster_id}; start it with the kwire.cluster.dir, or the "
            "zookeeper.connect, of that cluster",
            folder.path,
        )


def _check_cluster(folder: LogDir, membership: Membership) -> None:
    """Raises StorageError for a folder that belongs to no node, or to a node of another cluster."""
    if folder.meta.cluster_id != membership.cluster_id:
        raise ForeignFolderError(
            errno.EPERM,
            f"the folder belongs to cluster {folder.meta.cluster_id}, and this cluster is {membership.cluster_id}: "
            "choose the folder of this node, or an empty one",
            folder.path,
        )
    if (METADATA_TOPIC, 0) in folder.found:
        raise ForeignFolderError(
            errno.EPERM,
            "the folder has a metadata log of its own: it belongs to a broker that is not part of a cluster; start it "
            "without kwire.cluster.dir and zookeeper.connect, or choose an empty folder",
            folder.path,
        )


def _register(metadata: MetadataService, log_dirs: LogDirs, member: ClusterMember | None) -> None:
    ids = [folder.meta.directory_id for folder in log_dirs.dirs]
    if log_dirs.offline:
        # A registered folder that was not found may be one of the offline ones, so keep its id.
        ids += [known for known in metadata.registered_log_dirs if known not in ids]
    for path, error in log_dirs.offline.items():
        log.error("the log dir %s cannot be opened and is out of service: %s", path, error)
    if member is None:
        at_once(metadata.decide(Decision(register_alone, (ids,))))
        _begin_next_epochs(metadata)
    else:
        member.register(ids, stopped_epoch=log_dirs.stopped_epoch)


def _begin_next_epochs(metadata: MetadataService) -> None:
    """Begins the next leader epochs. On a full disk the last ones continue. Raises other OSErrors."""
    try:
        at_once(metadata.decide(Decision(next_epochs)))
    except OSError as error:
        if not is_full(error):
            raise
        log.warning("the leader epochs of the last start go on, because the metadata log cannot be written: %s", error)


def _open_logs(metadata: MetadataService, partitions: PartitionTable, run_all: RunAll) -> None:
    topics = list(metadata.image.topics.values())
    openings = partitions.openings(topics)
    run_all(
        [opening.run for opening in openings],
        lambda: f"checking the logs after an unclean stop: {OpeningProgress.of(openings)}",
        metadata.config.num_recovery_threads_per_data_dir * len(metadata.config.log_dirs),
    )
    partitions.opened(openings)
    at_once(partitions.apply(Changes(topics_created=topics)))
    partitions.settle_strays(lambda: at_once(metadata.deleted_topic_ids()))
    partitions.report_unreachable()
