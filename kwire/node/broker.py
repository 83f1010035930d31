"""A broker: its services, put together. It is synchronous; `running.py` and `network/server.py` run it on trio."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import attrs
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.directory.log_dirs import LogDirs
from kwire_storage.disk.files import Disk
from kwire_storage.errors import is_passing

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
from kwire.logs.disk_room import watched_rooms
from kwire.logs.moves import LogMoves
from kwire.metadata.auto_topic_creation import AutoTopicCreation
from kwire.metadata.controller.partitions.leader_epochs import epochs_behind
from kwire.metadata.controller.partitions.placement import move_replicas
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.features import SHARE_VERSION
from kwire.metadata.image import Changes, ConfigResourceType, TopicImage
from kwire.metadata.log import METADATA_TOPIC
from kwire.metadata.producer_ids import ProducerIds
from kwire.metadata.service import MetadataService
from kwire.names.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kwire.node.housekeeping import Housekeeping
from kwire.node.opening import RunAll, in_turn, open_logs, open_metadata, register
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
    producer_ids: ProducerIds
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
    """The parts of the broker with callbacks and tasks, in the order in which they are called."""
    member: ClusterMember | None = None
    """The membership in a cluster of several nodes; None without one."""
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
        run_all: RunAll = in_turn,
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
        loop = loop or Loop()
        with ExitStack() as on_error:
            if membership is not None:
                on_error.callback(membership.leave)
            metadata, log_dirs = open_metadata(config, disks, clock, membership, loop, on_error)
            member = None if membership is None else ClusterMember(membership, metadata)
            broker = cls._assemble(metadata, log_dirs, clock, run_all, member)
            on_error.pop_all()
        return broker

    @classmethod
    def _assemble(
        cls,
        metadata: MetadataService,
        log_dirs: LogDirs,
        clock: Clock,
        run_all: RunAll,
        member: ClusterMember | None,
    ) -> Broker:
        config, loop = metadata.config, metadata.loop
        register(metadata, log_dirs, member)

        # Replicas and their logs
        flusher = Flusher()
        in_sync = InSyncReplicas(metadata, lambda: metadata.config.replica_lag_time_max_ms)
        partitions = PartitionTable(
            config.node_id, log_dirs, clock, metadata.topic_values, lambda: metadata.config, flusher, loop, in_sync
        )
        moves = LogMoves(log_dirs, partitions, metadata, clock)
        open_logs(metadata, log_dirs, partitions, moves, run_all)

        # Coordinators
        offsets, transaction_state, share_group_state = (
            InternalTopic(name, partitions, clock, partial(metadata.change, auto_create_topic))
            for name in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
        )
        for_states, for_letters, for_administration = (
            peers_of(metadata, loop, purpose) for purpose in ("share-states", "dead-letters", "administration")
        )
        group_settings = GroupSettings(metadata)
        share_state = ShareStateService(config, share_group_state, partitions, metadata, clock, loop)
        persister = CoordinatorPersister(share_state, for_states, clock)
        create = partial(metadata.change, create_topics)
        groups = GroupService(config, offsets, clock, MetadataTopics(metadata), group_settings, persister, loop, create)
        producer_ids = ProducerIds(metadata)
        transactions = TransactionService(config, transaction_state, partitions, metadata, producer_ids, clock, loop)

        # Share groups' records
        counts = SharingCounts()
        letters = DeadLetters(metadata, partitions, group_settings, for_letters, clock, counts)
        max_sessions = config.group_share_max_share_sessions
        sharing = SharingService(persister, group_settings, letters, clock, counts, max_sessions=max_sessions)

        # Upkeep
        nodes = Nodes(metadata, member)
        housekeeping = Housekeeping(metadata, log_dirs, partitions, clock, watched_rooms(log_dirs), nodes)
        cleaner = LogCleaner(metadata, partitions, log_dirs, moves, flusher, clock)

        # Clients
        audit = AuditLog(Audited(config.kwire_audit_log), config.kwire_audit_log_format == "json", clock.now_ms)
        authorization = Authorization(AllowAll(), audit, metadata, partitions)
        fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, partial(_session_id, clock))

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
            producer_ids=producer_ids,
            share_state=share_state,
            persister=persister,
            sharing=sharing,
            peers=for_administration,
            all_peers=(*transactions.peers, for_states, for_letters, for_administration),
            fetch_sessions=fetch_sessions,
            leader_quota=_replication_quota(config, lambda: metadata.config.leader_replication_throttled_rate),
            follower_quota=_replication_quota(config, lambda: metadata.config.follower_replication_throttled_rate),
            client_quotas=_client_quotas(config),
            cleaner=cleaner,
            housekeeping=housekeeping,
            authorization=authorization,
            audit=audit,
            # Transactions after groups: decided ones are completed at once, also in the partitions of groups.
            services=(
                *(housekeeping, flusher, cleaner, moves, groups, transactions, share_state, sharing),
                *(() if member is None else (ClusterService(member, lambda reason: broker.end(reason)),)),
            ),
            member=member,
        )
        broker._begin_to_follow()
        broker._record_what_was_found()
        for service in broker.services:
            service.start()
        return broker

    def _begin_to_follow(self) -> None:
        """Follows the metadata, the partitions, the log dirs and the cluster from now on."""
        metadata, partitions = self.metadata, self.partitions
        metadata.follow = self._follow
        if self.config.authorizer_class_name:
            self._go_by_acls()
        self.client_quotas.follow(metadata.image.access.quotas)
        metadata.watch(self._follow_quotas)
        partitions.on_role, partitions.on_deleted = self._role_changed, self._topic_deleted
        for folder in self.log_dirs:
            folder.on_failed = self.take_offline
            folder.on_log_failed = self.take_log_offline
        if self.member is not None:
            self.member.on_replaced = self.end

    def _record_what_was_found(self) -> None:
        """Records facts that only the logs have in the metadata, and restarts interrupted moves."""
        metadata, partitions = self.metadata, self.partitions
        metadata.writes_snapshots = True
        self.moves.restart_interrupted()
        misplaced = partitions.misplaced(partitions.by_name)
        if misplaced:
            at_once(metadata.change(move_replicas, misplaced))
        if self.member is None:
            at_once(metadata.change(epochs_behind, partitions.epochs_ahead()))
            at_once(metadata.shorten_log())

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
        """Records the log dirs that this broker has chosen for replicas assigned by another broker (KIP-858)."""
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
        # First, because a smaller ISR must not meet an earlier min.insync.replicas: more would be committed than
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
        """Sets up the authorizer by the ACLs of the metadata."""
        from kwire.security.acls.acl import Acl  # most brokers need neither
        from kwire.security.acls.standard_authorizer import StandardAuthorizer

        authorizer = StandardAuthorizer(self.config.super_users, self.config.allow_everyone_if_no_acl_found)
        authorizer.change(map(Acl.of_record, self.metadata.image.access.acls.values()), ())

        def follow(changes: Changes) -> None:
            added, removed = changes.access.acls_added, changes.access.acls_removed
            if added or removed:
                authorizer.change(map(Acl.of_record, added), map(Acl.of_record, removed))
                self.fetch_sessions.read_all_again()

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


def _session_id(clock: Clock) -> int:
    return int.from_bytes(clock.uuid()[:4], "big") & 0x7FFFFFFF


def _client_quotas(config: ServerConfig) -> ClientQuotas:
    return ClientQuotas(
        Window.of(config.quota_window_num, config.quota_window_size_seconds),
        Window.of(config.controller_quota_window_num, config.controller_quota_window_size_seconds),
        running_ns,
    )


def _replication_quota(config: ServerConfig, limit: Callable[[], int]) -> ReplicationQuota:
    return ReplicationQuota(
        limit, config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000
    )
