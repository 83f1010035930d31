"""The metadata of this broker, alive: the image, and the one way to change it.

    request -> decision (pure) -> records -> log (durable) -> image -> watchers -> response

All of it is synchronous and happens on the event loop, so whoever was answered, and everybody after, sees the change.
Where the log is shared with others one day, the same steps run with other people's records in between: the image is
only ever moved by reading the log.

The decisions are imported when they are first asked for: a broker that is only produced to starts without them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ProducerIdsRecord
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.clock import Clock
from kwire.config.definition import Value
from kwire.config.resolution import ConfigResolver
from kwire.config.server import ServerConfig, warnings_about
from kwire.metadata.answers import AnswerCache
from kwire.metadata.bootstrap import bootstrap_records, registration_records
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.internal_topics import plan_topic
from kwire.metadata.controller.new_topics import check_new_name, clamped_replication_factor, topic_records
from kwire.metadata.controller.placement import assign_directories, place
from kwire.metadata.features import SUPPORTED_FEATURES, TRANSACTION_VERSION
from kwire.metadata.image import Changes, MetadataImage, ResourceType, TopicImage
from kwire.metadata.log import MetadataLog
from kwire.metadata.records import decode_record, encode_record

if TYPE_CHECKING:
    from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from kwire_protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
    from kwire_protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

    from kwire.metadata.controller.config_changes import ConfigChange, Outcome

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK: Final = 1000
"""Producer ids are taken from the log in blocks; what is left of one at a restart is lost, as in Kafka."""


Watcher = Callable[[Changes], None]
CheckRoom = Callable[[int], None]


def _unlimited(partitions: int) -> None:
    pass


def _unassigned(count: int) -> list[Uuid]:
    return [NULL_UUID] * count


@attrs.define(eq=False)
class MetadataService:
    """Open one with `MetadataService.open`.

    `config` is the server's configuration with the dynamic changes in it; `image` is to be looked at, never changed.
    `check_room(n)` raises StorageError where n new partitions have no room; what takes something away does without.
    """

    config: ServerConfig
    cluster_id: str
    log: MetadataLog
    clock: Clock
    configs: ConfigResolver
    choose_directories: Callable[[int], Sequence[Uuid]] = _unassigned
    """For so many new partitions of this broker: the log folder of each, where it has several."""
    image: MetadataImage = attrs.field(factory=MetadataImage)
    answers: AnswerCache = attrs.field(init=False)
    check_room: CheckRoom = _unlimited
    _watchers: list[Watcher] = attrs.field(factory=list)
    _dynamic_names: Set[str] = frozenset()
    """The dynamic configurations that there were when they last changed."""
    _next_producer_id: int = 0
    _producer_ids_end: int = 0

    def __attrs_post_init__(self) -> None:
        self.answers = AnswerCache(self.image)

    @classmethod
    def open(
        cls,
        config: ServerConfig,
        *,
        cluster_id: str,
        log: MetadataLog,
        clock: Clock,
        check_room: CheckRoom = _unlimited,
    ) -> MetadataService:
        """Replays the log; at the first start begins it. `register` comes next.

        Raises StorageError, CorruptLogError, ProtocolError (a record that this version does not know).
        """
        service = cls(config, cluster_id, log, clock, ConfigResolver(config.properties), check_room=check_room)
        service._catch_up()
        log.watch(service._catch_up)
        service._append(bootstrap_records(service.image))
        return service

    def register(self, log_dirs: Sequence[Uuid]) -> None:
        """Registers this broker, with the directory ids of its log folders, if it is not registered as it is.

        Raises StorageError.
        """
        self._append(
            registration_records(
                self.image,
                self.config,
                log_dirs=log_dirs,
                incarnation_id=self.clock.uuid(),
                epoch=self.log.end_offset,
            )
        )

    @property
    def registered_log_dirs(self) -> tuple[Uuid, ...]:
        """The directory ids that this broker had when it was last registered."""
        registration = self.image.brokers.get(self.node_id)
        return registration.log_dirs if registration is not None else ()

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        return SUPPORTED_FEATURES

    @property
    def transaction_version(self) -> int:
        """The level of the feature transaction.version: 2 stands for KIP-890, 0 and 1 for what was before."""
        return self.image.features.get(TRANSACTION_VERSION, 0)

    def watch(self, watcher: Watcher) -> None:
        """Calls `watcher` with what changed, each time right after the image took it in."""
        self._watchers.append(watcher)

    # -- looking

    def topic(self, name: str) -> TopicImage | None:
        return self.image.topics.get(name)

    def topic_id(self, name: str) -> Uuid | None:
        topic = self.image.topics.get(name)
        return topic.topic_id if topic is not None else None

    def topic_values(self, topic: str) -> Mapping[str, Value]:
        """The effective value of every topic configuration, by Kafka's names."""
        overrides = self.image.config(ResourceType.TOPIC, topic)
        return self.configs.topic_values(overrides) if overrides else self.configs.topic_defaults()

    def describe_configs(
        self, request: DescribeConfigsRequest, *, loggers: Mapping[str, str]
    ) -> DescribeConfigsResponse:
        """Raises KafkaError(INVALID_REQUEST) for a resource type that is none."""
        from kwire.metadata.config_description import describe_configs

        return describe_configs(self.state, request, loggers=loggers)

    def deleted_topic_ids(self) -> set[Uuid]:
        """The ids of all topics that ever were deleted. Reads the whole log, for a question that few starts have."""
        records = (decode_record(value) for _, value in self.log.read_from(0))
        found = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        return found - self.image.topics_by_id.keys()

    # -- changing; all raise KafkaError(KAFKA_STORAGE_ERROR) when the log cannot be written, and nothing changed then

    def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        from kwire.metadata.controller.topic_creation import create_topics

        records, response = create_topics(self.state, request)
        self._commit_new(records)
        return response

    def create_topic_by_itself(self, name: str) -> TopicImage:
        """Creates a topic that a client or the broker needs and nobody described, with the defaults or its own.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR (no broker).
        """
        state = self.state
        check_new_name(state, name)
        plan = plan_topic(name, self.config)
        assignment = place(
            self.image,
            first_partition=0,
            count=plan.partitions,
            replication_factor=clamped_replication_factor(state, plan.replication_factor),
        )
        self._commit_new(topic_records(state, name, self.clock.uuid(), plan.configs, assignment))
        return self.image.topics[name]

    def delete_topics(self, request: DeleteTopicsRequest, *, version: int) -> DeleteTopicsResponse:
        from kwire.metadata.controller.topic_deletion import delete_topics

        records, response = delete_topics(self.state, request, version=version, enabled=self.config.delete_topic_enable)
        self.commit(records)
        return response

    def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        from kwire.metadata.controller.partition_creation import create_partitions

        records, response = create_partitions(self.state, request)
        self._commit_new(records)
        return response

    def alter_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool) -> list[Outcome]:
        from kwire.metadata.controller.config_changes import alter_configs

        records, outcomes = alter_configs(self.state, changes, validate_only=validate_only)
        self.commit(records)
        return outcomes

    def update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        """Raises KafkaError(INVALID_UPDATE_VERSION) as well: nothing changes then."""
        from kwire.metadata.controller.feature_updates import update_features

        records, response = update_features(self.state, request)
        self.commit(records)
        return response

    def move_partitions(self, directories: Mapping[tuple[Uuid, int], Uuid]) -> None:
        """Notes which log folder of this broker has these partitions, each given by topic id and index, from now on."""
        self.commit(
            [
                PartitionChangeRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    directories=self.image.topics_by_id[topic_id]
                    .partitions[index]
                    .with_directory(self.node_id, directory_id),
                )
                for (topic_id, index), directory_id in directories.items()
            ]
        )

    def begin_epochs_behind(self, latest: Mapping[tuple[Uuid, int], int]) -> None:
        """Gives partitions, by topic id and index, the leader epoch that follows the latest of their logs."""
        if latest:
            from kwire.metadata.controller.leader_epochs import epochs_behind

            self._append(epochs_behind(self.image, latest))

    def next_producer_id(self) -> int:
        """A producer id that was never given out before, nor will be again."""
        if self._next_producer_id == self._producer_ids_end:
            first = self.image.next_producer_id
            registration = self.image.brokers.get(self.node_id)
            epoch = registration.broker_epoch if registration is not None else -1
            self._commit_new([ProducerIdsRecord(self.node_id, epoch, first + PRODUCER_ID_BLOCK)])
            self._next_producer_id, self._producer_ids_end = first, first + PRODUCER_ID_BLOCK
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    def _commit_new(self, records: Records) -> None:
        """As `commit`, for what takes room: refused, at once and whole, where there is none for its partitions."""
        if records:
            try:
                self.check_room(sum(isinstance(record, PartitionRecord) for record in records))
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.strerror) from error
        self.commit(records)

    def commit(self, records: Records) -> None:
        """Makes the records so: they are durable, applied and told to the watchers when this returns."""
        try:
            # In the same append, so that no crash leaves a partition of which nobody knows where it was to be. A broker
            # apart from its controller has to report where it put its replicas (AssignReplicasToDirs, KIP-858).
            assign_directories(records, self.node_id, self.choose_directories)
            self._append(records)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be written: {error}") from error

    def _append(self, records: Records) -> None:
        if records:
            values = [encode_record(record) for record in records]
            self.log.append(values, expected_end_offset=self.log.end_offset)

    @property
    def state(self) -> ClusterState:
        """What a decision of the controller's looks at."""
        return ClusterState(
            image=self.image,
            configs=self.configs,
            node_id=self.node_id,
            num_partitions=self.config.num_partitions,
            default_replication_factor=self.config.default_replication_factor,
            new_id=self.clock.uuid,
        )

    def _catch_up(self) -> None:
        changes = Changes()
        for offset, value in self.log.read_from(self.image.offset + 1):
            self.image.apply(decode_record(value), offset=offset, changes=changes)
        if changes.configures_this_broker(self.node_id):
            self._configure()
        for watcher in self._watchers:
            watcher(changes)

    def _configure(self) -> None:
        self.configs.update(
            dynamic_default=self.image.config(ResourceType.BROKER, ""),
            dynamic_broker=self.image.config(ResourceType.BROKER, str(self.node_id)),
        )
        self.config = attrs.evolve(
            ServerConfig.from_properties(self.configs.effective),
            # What the flags and the system made of the static ones.
            properties=self.config.properties,
            listeners=self.config.listeners,
            log_dirs=self.config.log_dirs,
            metadata_log_dir=self.config.metadata_log_dir,
        )
        self._tell_of_ineffective()

    def _tell_of_ineffective(self) -> None:
        """As for the names in a file: those without effect, and unknown ones, are told when they come up."""
        configured = {*self.configs.dynamic_default, *self.configs.dynamic_broker}
        for warning in warnings_about(configured - self._dynamic_names):
            log.warning("%s", warning)
        for name, why in self.configs.refused.items():
            if name not in self._dynamic_names:
                log.warning("the metadata log has a configuration that is not followed: %s", why)
        self._dynamic_names = configured | self.configs.refused.keys()
