"""This broker's live metadata: the image, and the only way to change it.

    request -> decision (pure) -> records -> log (durable) -> image -> partitions -> watchers -> response

Changes are carried out one at a time, in the order of the requests, each decided on the state after the previous one.
The log may be slow, and others may append to it: if another writer was first, the decision is made again on the new
state. Only reading the log changes the image. It is read in slices, with requests served in between. A new topic
becomes visible when its partitions are served. Once a change is answered, every client sees it.

The decision modules are imported when they are first needed, so a broker that only serves producers starts without
them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ProducerIdsRecord
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import NULL_UUID, Uuid
from kwire_storage.errors import is_full
from outcome import Outcome, acapture

from kwire.config.definition import ConfigError, Value, told
from kwire.config.resolution import ConfigResolver
from kwire.config.server import ServerConfig, warnings_about
from kwire.metadata.answers import AnswerCache
from kwire.metadata.bootstrap import bootstrap_records, registration_record, registration_records
from kwire.metadata.controller.deciding import (
    ANY_MUTATIONS,
    CheckListeners,
    ClusterState,
    Mutations,
    Records,
    accept_all,
)
from kwire.metadata.controller.partitions.placement import Placer, assign_directories
from kwire.metadata.controller.topics.internal_topics import plan_topic
from kwire.metadata.controller.topics.new_topics import check_new_name, clamped_replication_factor, topic_records
from kwire.metadata.features import SUPPORTED_FEATURES, TRANSACTION_VERSION
from kwire.metadata.image import Changes, ConfigResourceType, MetadataImage, TopicImage
from kwire.metadata.log import AppendConflict, LogTruncated, MetadataLog
from kwire.metadata.producer_ids import ProducerIds
from kwire.metadata.records import MetadataRecord, decode_record, encode_record
from kwire.metadata.snapshots import SnapshotSchedule, difference_records, image_records
from kwire.runtime.callbacks import ignore
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future, at_once, drive
from kwire.runtime.loop import Loop
from kwire.runtime.slices import Slices

if TYPE_CHECKING:
    from kwire_protocol.internal.metadata_security import DelegationTokenRecord
    from kwire_protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from kwire_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from kwire_protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from kwire_protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from kwire_protocol.messages.create_delegation_token import CreateDelegationTokenRequest
    from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from kwire_protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
    from kwire_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from kwire_protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

    from kwire.metadata.controller.access.acls import Deletion
    from kwire.metadata.controller.access.delegation_tokens import TokenLifetimes
    from kwire.metadata.controller.configs.config_changes import ConfigChange
    from kwire.metadata.controller.configs.config_changes import Outcome as ConfigOutcome
    from kwire.metadata.delegation_tokens import DelegationTokens
    from kwire.security.acls.acl import Acl
    from kwire.security.acls.filters import AclFilter
    from kwire.security.principal import Principal

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK: Final = 1000
"""How many producer ids a block has; what is left of one at a restart is lost, as in Kafka."""

RECORDS_PER_SLICE: Final = 100
"""How many records are encoded, or applied, before other work has a turn."""

MOST_REFUSED_TOPICS: Final = 1000
"""The limit on topics whose refused creation is remembered, each with its reason."""

T = TypeVar("T")

Watcher = Callable[[Changes], None]
Follower = Callable[[Changes], Awaitable[None]]
CheckRoom = Callable[[int], None]
Decide = Callable[[ClusterState], tuple[Records, T]]
"""A decision: the records that carry it out, and what to answer once they are applied. Raises KafkaError."""


async def _no_partitions(changes: Changes) -> None: ...


def _unassigned(count: int) -> list[Uuid]:
    return [NULL_UUID] * count


@attrs.frozen
class _Asked(Generic[T]):
    """A requested change. `needs_room`: it is refused if there is no room for its new partitions."""

    decide: Decide[T]
    needs_room: bool
    future: Future[Outcome[T]] = attrs.field(factory=Future)


@attrs.define(eq=False)
class MetadataService:
    """Open one with `MetadataService.open`.

    `config` is the server's configuration including dynamic changes; `image` is read-only for callers. `check_room(n)`
    raises StorageError if there is no room for n new partitions; deletions do not call it.
    """

    config: ServerConfig
    cluster_id: str
    log: MetadataLog
    clock: Clock
    configs: ConfigResolver
    choose_directories: Callable[[int], Sequence[Uuid]] = _unassigned
    """For so many new partitions of this broker: the log dir of each, where it has several."""
    image: MetadataImage = attrs.field(factory=MetadataImage)
    answers: AnswerCache = attrs.field(init=False)
    check_room: CheckRoom = ignore
    loop: Loop = attrs.field(factory=Loop)
    writes_snapshots: bool = False
    """Not before the partitions follow: until then the log may be needed, see `deleted_topic_ids`."""
    follow: Follower = _no_partitions
    """Makes the partitions of this node follow a change, in slices; a new topic is not seen before that is done."""
    is_alone: bool = True
    """Whether this broker is the whole cluster, and always will be."""
    check_listeners: CheckListeners = accept_all
    """Looks at changed configurations of this broker's listeners before they are accepted."""
    producer_ids: ProducerIds = attrs.field(init=False)
    _watchers: list[Watcher] = attrs.field(factory=list)
    _delegation_tokens: DelegationTokens | None = None
    """Made when it is needed."""
    _dynamic_names: Set[str] = frozenset()
    """The dynamic configurations that there were when they last changed."""
    _read_to: int = 0
    """The image has the log up to this offset."""
    _loaded_to: int = 0
    """Where the snapshot ended with which this start began."""
    _snapshots: SnapshotSchedule = attrs.field(init=False)
    _asked: deque[_Asked[Any]] = attrs.field(factory=deque)
    _is_loaded: bool = False
    """What the log had at the start was news when it was written."""
    _is_working: bool = False
    _has_news: bool = False
    """Since the log was read last."""
    _refused_topics: dict[str, str] = attrs.field(factory=dict)
    """The topics that clients requested and that could not be created, with the reason that was logged."""

    def __attrs_post_init__(self) -> None:
        self.answers = AnswerCache(self.image)
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self._snapshots = SnapshotSchedule(
            self.config.metadata_log_max_record_bytes_between_snapshots,
            self.config.metadata_log_max_snapshot_interval_ms,
            self.clock.now_ms(),
        )

    @classmethod
    def open(
        cls,
        config: ServerConfig,
        *,
        cluster_id: str,
        log: MetadataLog,
        clock: Clock,
        check_room: CheckRoom = ignore,
        loop: Loop | None = None,
    ) -> MetadataService:
        """Replays the log, or begins it at the first start. Call `register` next.

        Raises StorageError, CorruptLogError, ProtocolError (a record that this version does not know).
        """
        service = cls(
            config,
            cluster_id,
            log,
            clock,
            ConfigResolver(config.properties, defaults=config.defaults),
            check_room=check_room,
            loop=loop or Loop(),
        )
        at_once(service._load())
        log.watch(service._work)
        at_once(service._in_its_turn(lambda state: (bootstrap_records(state), None)))
        return service

    async def register(self, log_dirs: Sequence[Uuid]) -> None:
        """Registers this broker, with the directory ids of its log dirs, unless that is already recorded.

        Raises OSError.
        """

        def decide(state: ClusterState) -> tuple[Records, None]:
            records = registration_records(
                state.image,
                self.config,
                log_dirs=log_dirs,
                incarnation_id=self.clock.uuid(),
                epoch=self._read_to,
            )
            return records, None

        await self._in_its_turn(decide)

    async def register_in_cluster(self, log_dirs: Sequence[Uuid], *, stopped_epoch: int) -> int:
        """Registers this broker anew, as every start of a cluster's broker does: fenced, until it serves clients.

        `stopped_epoch` is its broker epoch at its last clean stop; see `brokers.register`. Returns the new one. Raises
        OSError.
        """
        from kwire.metadata.controller.brokers import register

        def decide(state: ClusterState) -> tuple[Records, int]:
            registration = registration_record(
                self.config, log_dirs=log_dirs, incarnation_id=self.clock.uuid(), epoch=self._read_to, fenced=True
            )
            return register(state, registration, stopped_epoch=stopped_epoch), self._read_to

        return await self._in_its_turn(decide)

    @property
    def registered_log_dirs(self) -> tuple[Uuid, ...]:
        """The directory ids in this broker's last registration."""
        registration = self.image.brokers.get(self.node_id)
        return registration.log_dirs if registration is not None else ()

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        return SUPPORTED_FEATURES

    def feature_level(self, name: str) -> int:
        """The cluster's level of a feature; 0 if it is off."""
        return self.image.features.get(name, 0)

    @property
    def transaction_version(self) -> int:
        """The level of the feature transaction.version: 2 means KIP-890, 0 and 1 the protocol before it."""
        return self.feature_level(TRANSACTION_VERSION)

    def watch(self, watcher: Watcher) -> None:
        """Calls `watcher` with each set of changes, right after the image has applied them."""
        self._watchers.append(watcher)

    # -- looking

    def topic(self, name: str) -> TopicImage | None:
        return self.image.topics.get(name)

    def topic_id(self, name: str) -> Uuid | None:
        topic = self.image.topics.get(name)
        return topic.topic_id if topic is not None else None

    def topic_values(self, topic: str) -> Mapping[str, Value]:
        """The effective value of every topic configuration, by Kafka's names."""
        return self.state.topic_values(topic)

    def describe_configs(
        self, request: DescribeConfigsRequest, *, loggers: Mapping[str, str]
    ) -> DescribeConfigsResponse:
        """Raises KafkaError(INVALID_REQUEST) for an unknown resource type."""
        from kwire.metadata.config_description import describe_configs

        return describe_configs(self.state, request, loggers=loggers)

    async def deleted_topic_ids(self) -> set[Uuid]:
        """The ids of topics deleted since the last snapshot; earlier deletions were already applied to the partitions.

        Reads the log, which few starts need.
        """
        found: set[Uuid] = set()
        offset = self._loaded_to
        # What others append meanwhile must not get into the image before the partitions follow it.
        self._is_working = True
        try:
            while offset < self._read_to:
                read = await self.log.read(offset)
                offset = read.next_offset
                records = (decode_record(value) for _, value in read.records)
                found |= {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        finally:
            self._is_working = False
        return found - self.image.topics_by_id.keys()

    @property
    def delegation_tokens(self) -> DelegationTokens | None:
        """The cluster's tokens by their secrets; None if there are none because delegation.token.secret.key is not set.

        Those that never have to do with tokens do not make this.
        """
        secret_key = self.config.delegation_token_secret_key
        if self._delegation_tokens is None and secret_key is not None:
            from kwire.metadata.delegation_tokens import DelegationTokens

            tokens = self._delegation_tokens = DelegationTokens(self.image.access.delegation_tokens, secret_key)
            self.watch(lambda changes: tokens.follow(changes.access.delegation_tokens))
        return self._delegation_tokens

    # -- changing; all raise KafkaError(KAFKA_STORAGE_ERROR) when the log cannot be written, and nothing changed then

    async def create_topics(
        self, request: CreateTopicsRequest, mutations: Mutations = ANY_MUTATIONS
    ) -> CreateTopicsResponse:
        from kwire.metadata.controller.topics.topic_creation import create_topics

        return await self.change(lambda state: create_topics(state, request, mutations), needs_room=True)

    async def create_topic_by_itself(self, name: str) -> None:
        """Creates a topic that a client or the broker needs, with the default settings, or its own if it is internal.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR (no broker).
        """

        def decide(state: ClusterState) -> tuple[Records, None]:
            check_new_name(state, name)
            plan = plan_topic(name, self.config)
            assignment = Placer.of(state.image).place(
                count=plan.partitions,
                replication_factor=clamped_replication_factor(state, plan.replication_factor),
            )
            return topic_records(state, name, state.new_id(), plan.configs, assignment), None

        await self.change(decide, needs_room=True)

    async def create_topic_for_client(self, name: str) -> None:
        """Creates a topic as `create_topic_by_itself` does, for a client, to which no refusal is sent.

        The reason of a refusal is logged instead, once while it stays the same: a client tries again several times a
        second.
        """
        try:
            await self.create_topic_by_itself(name)
        except KafkaError as error:
            reason = str(error)
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS and self._refused_topics.get(name) != reason:
                if len(self._refused_topics) >= MOST_REFUSED_TOPICS:
                    del self._refused_topics[next(iter(self._refused_topics))]
                self._refused_topics[name] = reason
                log.warning("topic %s, which a client requested, cannot be created: %s", name, reason)
        else:
            self._refused_topics.pop(name, None)

    async def delete_topics(
        self, request: DeleteTopicsRequest, mutations: Mutations = ANY_MUTATIONS, *, version: int
    ) -> DeleteTopicsResponse:
        from kwire.metadata.controller.topics.topic_deletion import delete_topics

        enabled = self.config.delete_topic_enable
        return await self.change(
            lambda state: delete_topics(state, request, mutations, version=version, enabled=enabled)
        )

    async def create_partitions(
        self, request: CreatePartitionsRequest, mutations: Mutations = ANY_MUTATIONS
    ) -> CreatePartitionsResponse:
        from kwire.metadata.controller.topics.partition_creation import create_partitions

        return await self.change(lambda state: create_partitions(state, request, mutations), needs_room=True)

    async def alter_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool) -> list[ConfigOutcome]:
        from kwire.metadata.controller.configs.config_changes import alter_configs

        return await self.change(lambda state: alter_configs(state, changes, validate_only=validate_only))

    async def alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        from kwire.metadata.controller.access.client_quotas import alter_client_quotas

        return await self.change(lambda state: alter_client_quotas(state, request))

    async def create_delegation_token(
        self, request: CreateDelegationTokenRequest, *, owner: Principal, requester: Principal
    ) -> DelegationTokenRecord:
        """Raises KafkaError as `create_token` does."""
        from kwire.metadata.controller.access.delegation_tokens import create_token

        lifetimes = self._token_lifetimes
        return await self.change(
            lambda state: create_token(
                state, request, owner=owner, requester=requester, lifetimes=lifetimes, now_ms=self.clock.now_ms()
            )
        )

    async def renew_delegation_token(self, token_hmac: bytes, *, period_ms: int, requester: Principal) -> int:
        """Returns when the token expires then. Raises KafkaError as `renew_token` does."""
        from kwire.metadata.controller.access.delegation_tokens import renew_token

        lifetimes = self._token_lifetimes
        return await self.change(
            lambda state: renew_token(
                state,
                self._token_id(token_hmac),
                period_ms=period_ms,
                requester=requester,
                lifetimes=lifetimes,
                now_ms=self.clock.now_ms(),  # when its turn has come
            )
        )

    async def expire_delegation_token(self, token_hmac: bytes, *, period_ms: int, requester: Principal) -> int:
        """Returns when the token expires then. Raises KafkaError as `expire_token` does."""
        from kwire.metadata.controller.access.delegation_tokens import expire_token

        return await self.change(
            lambda state: expire_token(
                state,
                self._token_id(token_hmac),
                period_ms=period_ms,
                requester=requester,
                now_ms=self.clock.now_ms(),
            )
        )

    async def remove_expired_tokens(self) -> None:
        """Removes the delegation tokens that nobody can log in with any more."""
        from kwire.metadata.controller.access.delegation_tokens import remove_expired

        now_ms = self.clock.now_ms()
        while await self.change(lambda state: remove_expired(state, now_ms=now_ms)):
            pass

    def _token_id(self, token_hmac: bytes) -> str | None:
        tokens = self.delegation_tokens
        return None if tokens is None else tokens.id_of(token_hmac)

    @property
    def _token_lifetimes(self) -> TokenLifetimes:
        from kwire.metadata.controller.access.delegation_tokens import TokenLifetimes

        config = self.config
        return TokenLifetimes(config.delegation_token_expiry_time_ms, config.delegation_token_max_lifetime_ms)

    async def update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        """Raises KafkaError(INVALID_UPDATE_VERSION) as well: nothing changes then."""
        from kwire.metadata.controller.feature_updates import update_features

        return await self.change(lambda state: update_features(state, request))

    async def reassign_partitions(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        from kwire.metadata.controller.partitions.reassignments import reassign_partitions

        return await self.change(lambda state: reassign_partitions(state, request))

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Raises KafkaError(INVALID_REQUEST) as well: there is no such type of election."""
        from kwire.metadata.controller.partitions.leader_elections import elect_leaders

        return await self.change(lambda state: elect_leaders(state, request))

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Raises KafkaError(STALE_BROKER_EPOCH) as well."""
        from kwire.metadata.controller.partitions.isr_requests import alter_partition

        return await self.change(lambda state: alter_partition(state, request))

    async def create_acls(self, acls: Sequence[Acl]) -> list[KafkaError | None]:
        """Why each was not created. Raises KafkaError as well: POLICY_VIOLATION, UNKNOWN_SERVER_ERROR."""
        from kwire.metadata.controller.access.acls import create_acls

        return await self.change(lambda state: create_acls(state, acls))

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[Deletion]:
        """What each filter deleted. Raises KafkaError(INVALID_REQUEST) as well: there are too many."""
        from kwire.metadata.controller.access.acls import delete_acls

        return await self.change(lambda state: delete_acls(state, filters))

    async def alter_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """Raises KafkaError(POLICY_VIOLATION) as well: it is too large."""
        from kwire.metadata.controller.access.scram_users import alter_scram_credentials

        return await self.change(lambda state: alter_scram_credentials(state, request))

    async def unregister_broker(self, broker_id: int) -> None:
        """Raises KafkaError as well: BROKER_ID_NOT_REGISTERED, INVALID_REQUEST (it is in service)."""
        from kwire.metadata.controller.brokers import unregister

        await self.change(lambda state: (unregister(state, broker_id), None))

    async def move_partitions(self, directories: Mapping[tuple[Uuid, int], Uuid]) -> None:
        """Records which of this broker's log dirs has these partitions from now on, given by topic id and index.

        Partitions of topics that were deleted meanwhile are left out.
        """

        def decide(state: ClusterState) -> tuple[Records, None]:
            topics = state.image.topics_by_id
            return [
                PartitionChangeRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    directories=topics[topic_id].partitions[index].with_directory(state.node_id, directory_id),
                )
                for (topic_id, index), directory_id in directories.items()
                if topic_id in topics
            ], None

        await self.change(decide)

    async def begin_next_epochs(self) -> None:
        """Begins the next leader epoch of each partition, as every start of a broker without a cluster does.

        On a full disk the last epochs go on.
        """
        from kwire.metadata.controller.partitions.leader_epochs import next_epochs

        try:
            await self._in_its_turn(lambda state: (next_epochs(state.image, state.node_id), None))
        except OSError as error:
            if not is_full(error):
                raise
            log.warning(
                "the leader epochs of the last start go on, because the metadata log cannot be written: %s", error
            )

    async def shorten_log(self) -> None:
        """Writes a snapshot at the end of a start, if the log has become long.

        Without it, a broker that never runs for long would keep the records of each of its starts.
        """
        assert not self._is_working, "nothing changes the metadata yet"
        if self._snapshots.is_long:
            await self._write_snapshot()

    async def begin_epochs_behind(self, latest: Mapping[tuple[Uuid, int], int]) -> None:
        """Gives partitions, by topic id and index, the leader epoch after the latest of their logs."""
        if latest:
            from kwire.metadata.controller.partitions.leader_epochs import epochs_behind

            await self.change(lambda state: (epochs_behind(state.image, latest), None))

    async def _allocate_producer_ids(self) -> range:
        def decide(state: ClusterState) -> tuple[Records, range]:
            first = state.image.next_producer_id
            registration = state.image.brokers.get(state.node_id)
            epoch = registration.broker_epoch if registration is not None else -1
            block = range(first, first + PRODUCER_ID_BLOCK)
            return [ProducerIdsRecord(state.node_id, epoch, block.stop)], block

        return await self.change(decide, needs_room=True)

    async def change(self, decide: Decide[T], *, needs_room: bool = False) -> T:
        """Carries out a decision after all earlier ones. When this returns its response, the records are durable and
        applied, and the watchers have been called. Raises KafkaError as `decide` does.

        The change is carried out even if the caller is cancelled. `decide` is called again if another writer has
        appended to the log meanwhile. `needs_room`: refused, at once and completely, if there is no room for its new
        partitions.
        """
        try:
            return await self._in_its_turn(decide, needs_room=needs_room)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be written: {error}") from error

    async def _in_its_turn(self, decide: Decide[T], *, needs_room: bool = False) -> T:
        asked = _Asked(decide, needs_room)
        self._asked.append(asked)
        self._work()
        return (await asked.future).unwrap()

    def _work(self) -> None:
        """There is work: a change was requested, or the log has new records."""
        self._has_news = True
        if not self._is_working:
            self._is_working = True
            drive(self._work_off())

    async def _work_off(self) -> None:
        try:
            while self._asked or self._read_to != self.log.end_offset:
                if self._asked:
                    asked = self._asked.popleft()
                    asked.future.set(await acapture(self._carry_out, asked.decide, needs_room=asked.needs_room))
                else:
                    read_to, self._has_news = self._read_to, False
                    await self._follow_others()
                    if self._read_to == read_to and not self._asked and not self._has_news:
                        break  # The log cannot be read now: its next news, or the next change, tries again.
                if self.writes_snapshots and self._snapshots.is_due(now_ms=self.clock.now_ms()):
                    await self._write_snapshot()
        finally:
            self._is_working = False

    def stop_following(self) -> None:
        """The partitions of this node are about to close: what is decided from now on does not concern them.

        A role that ends here could still make a coordinator append to its log, behind the mark of a clean stop.
        """
        self.follow = _no_partitions
        self._watchers.clear()

    async def _follow_others(self) -> None:
        try:
            await self._catch_up()
        except OSError as error:
            log.error("the partitions of this node cannot follow a change of the metadata: %s", error)

    async def _carry_out(self, decide: Decide[T], *, needs_room: bool) -> T:
        """The only place that appends records, and that handles other writers that were first."""
        while True:
            records, answer = decide(self.state)
            if not records:
                return answer
            if needs_room:
                self._check_room(records)
            # In the same append, so that no crash leaves a partition without a log dir. A broker that is separate from
            # its controller has to report where it put its replicas (AssignReplicasToDirs, KIP-858).
            assign_directories(records, self.node_id, self.choose_directories)
            values = await self._encoded(records)
            try:
                await self.log.append(values, expected_end_offset=self._read_to)
            except AppendConflict:
                await self._follow_others()
                continue
            await self._catch_up()
            return answer

    def _check_room(self, records: Records) -> None:
        try:
            self.check_room(sum(isinstance(record, PartitionRecord) for record in records))
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.strerror) from error

    async def _encoded(self, records: Records) -> list[bytes]:
        slices, values = Slices(self.loop, RECORDS_PER_SLICE), []
        for record in records:
            values.append(encode_record(record))
            await slices.after(1)
        return values

    @property
    def state(self) -> ClusterState:
        """The input of a controller's decision."""
        return ClusterState(
            image=self.image,
            configs=self.configs,
            node_id=self.node_id,
            num_partitions=self.config.num_partitions,
            default_replication_factor=self.config.default_replication_factor,
            new_id=self.clock.uuid,
            is_alone=self.is_alone,
            check_listeners=self.check_listeners,
        )

    async def _write_snapshot(self) -> None:
        """Runs between two changes, so that the image does not change; new changes wait."""
        self._snapshots.begin_anew(now_ms=self.clock.now_ms())
        if not self.image.can_be_recorded:
            return
        slices, values = Slices(self.loop, RECORDS_PER_SLICE), []
        for record in image_records(self.image):
            values.append(encode_record(record))
            await slices.after(1)
        try:
            await self.log.write_snapshot(values, end_offset=self._read_to)
        except OSError as error:
            log.error("no snapshot of the metadata can be written, so the log is kept: %s", error)

    async def _load(self) -> None:
        """At the start. Raises StorageError, CorruptLogError, ProtocolError."""
        snapshot = await self.log.read_snapshot()
        if snapshot is not None:
            changes = snapshot.apply_to(self.image)
            self._read_to = self._loaded_to = snapshot.end_offset
            if changes.configures_this_broker(self.node_id):
                self._configure()
        await self._catch_up()
        self._is_loaded = True
        self._tell_of_ignored(self.image.configs)

    async def _catch_up(self) -> None:
        """Applies the log's new records to the image. Raises OSError if the partitions could not follow all of them."""
        failed: OSError | None = None
        while True:
            try:
                read = await self.log.read(self._read_to)
            except LogTruncated:
                records, read_to = await self._read_snapshot()
            else:
                if read.next_offset == self._read_to:
                    break
                self._snapshots.applied(read.size_in_bytes)
                records = ((offset, decode_record(value)) for offset, value in read.records)
                read_to = read.next_offset
            try:
                await self._apply(records, read_to)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    async def _read_snapshot(self) -> tuple[Iterable[tuple[int, MetadataRecord]], int]:
        """Another node has cut the log, behind which this one was: what a snapshot has that the image lacks."""
        snapshot = await self.log.read_snapshot()
        assert snapshot is not None, "the log begins where a snapshot ends"
        log.info("the metadata log was cut: going on at the snapshot of offset %d", snapshot.end_offset)
        target = MetadataImage()
        snapshot.apply_to(target)
        records = list(difference_records(self.image, target))
        return ((snapshot.end_offset - 1, record) for record in records), snapshot.end_offset

    async def _apply(self, records: Iterable[tuple[int, MetadataRecord]], read_to: int) -> None:
        """Applies what was read up to there. Raises OSError if the partitions could not follow."""
        changes = Changes()
        slices = Slices(self.loop, RECORDS_PER_SLICE)
        for offset, record in records:
            self.image.apply(record, offset=offset, changes=changes)
            await slices.after(1)
        self._read_to = read_to
        if changes.configures_this_broker(self.node_id):
            self._configure()
        if self._is_loaded:
            self._tell_of_ignored(changes.configs)
            _tell_of_unclean_elections(changes)
        try:
            await self.follow(changes)
        finally:
            self.image.publish(changes)
            for watcher in self._watchers:
                watcher(changes)

    def _configure(self) -> None:
        self.configs.update(
            dynamic_default=self.image.config(ConfigResourceType.BROKER, ""),
            dynamic_broker=self.image.config(ConfigResourceType.BROKER, str(self.node_id)),
        )
        self._tell_of_ineffective()
        try:
            config = ServerConfig.from_properties(self.configs.effective)
        except ConfigError as error:
            # Each value is valid, and was refused if it does not fit the others: another version may have seen to that.
            log.warning("the configurations in the metadata log are not followed: %s", error)
            return
        self.config = attrs.evolve(
            config,
            # What the flags and the system made of the static ones.
            properties=self.config.properties,
            defaults=self.config.defaults,
            listeners=self.config.listeners,
            log_dirs=self.config.log_dirs,
            metadata_log_dir=self.config.metadata_log_dir,
        )

    def _tell_of_ignored(self, resources: Iterable[tuple[int, str]]) -> None:
        """Logs what topics and groups have in the log, and what is not followed: another version has accepted it."""
        for resource_type, name in resources:
            texts = self.image.config(resource_type, name)
            match resource_type:
                case ConfigResourceType.TOPIC:
                    what, ignored = "topic", self.configs.of_topic(texts).ignored
                case ConfigResourceType.GROUP:
                    what, ignored = "group", self.configs.of_group(texts).ignored
                case _:
                    continue
            for why in ignored:
                log.warning(
                    "the metadata log has a configuration of %s %s that is not followed: %s; change or remove it",
                    what,
                    told(name),
                    why,
                )

    def _tell_of_ineffective(self) -> None:
        """Logs names without effect and unknown names when they appear, as for a configuration file."""
        configured = {*self.configs.dynamic_default, *self.configs.dynamic_broker}
        for warning in warnings_about(configured - self._dynamic_names):
            log.warning("%s", warning)
        for name, why in self.configs.refused.items():
            if name not in self._dynamic_names:
                log.warning("the metadata log has a configuration that is not followed: %s; change or remove it", why)
        self._dynamic_names = configured | self.configs.refused.keys()


def _tell_of_unclean_elections(changes: Changes) -> None:
    for it in changes.unclean_elections:
        if it.leader == it.last_leader:
            continue  # It was the last one in sync, so no other replica has a record that it lacks.
        log.warning(
            "unclean election: partition %d of topic %s, which broker %d led, is led by broker %d, which was not in "
            "sync: acknowledged records that broker %d lacks are lost",
            it.partition,
            told(it.topic),
            it.last_leader,
            it.leader,
            it.leader,
        )
