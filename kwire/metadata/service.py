"""This broker's live metadata: the image, and the only way to change it.

    rule and request -> decision (pure) -> records -> log (durable) -> image -> partitions -> watchers -> response

Changes are carried out one at a time, in the order of the requests, each decided on the state after the previous one.
The log may be slow, and others may append to it: if another writer has appended first, the decision is made again on
the new state. Only reading the log changes the image. It is read in slices, with requests served in between. A new
topic becomes visible when its partitions are served. After the response to a change, every client sees it.

The service has no rules for decisions: they are in `kwire.metadata.controller`, and callers pass them
(`metadata.change(create_topics, request)`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, Generic, overload

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ProducerIdsRecord
from kwire_protocol.internal.metadata_topics import PartitionRecord, RemoveTopicRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import NULL_UUID, Uuid
from outcome import Outcome, acapture

from kwire.config.definition import ConfigError, Value, shown
from kwire.config.resolution import ConfigResolver
from kwire.config.server import ServerConfig, warnings_about
from kwire.metadata.answers import AnswerCache
from kwire.metadata.bootstrap import bootstrap_records
from kwire.metadata.controller.deciding import (
    CheckListeners,
    ClusterState,
    Decision,
    P,
    PlainRule,
    Records,
    Rule,
    T,
)
from kwire.metadata.controller.partitions.placement import assign_directories
from kwire.metadata.features import SUPPORTED_FEATURES, TRANSACTION_VERSION
from kwire.metadata.image import Changes, ConfigResourceType, MetadataImage, TopicImage
from kwire.metadata.log import AppendConflict, LogTruncated, MetadataLog
from kwire.metadata.records import MetadataRecord, decode_record, encode_record
from kwire.metadata.snapshots import SnapshotSchedule, difference_records, image_records
from kwire.runtime.callbacks import ignore
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future, at_once, drive
from kwire.runtime.loop import Loop
from kwire.runtime.slices import Slices

if TYPE_CHECKING:
    from kwire.metadata.delegation_tokens import DelegationTokens

log = logging.getLogger(__name__)

RECORDS_PER_SLICE: Final = 100
"""The number of records that are encoded, or applied, before other work has a turn."""

Watcher = Callable[[Changes], None]
Follower = Callable[[Changes], Awaitable[None]]
CheckRoom = Callable[[int], None]


async def _no_partitions(changes: Changes) -> None: ...


def _unassigned(count: int) -> list[Uuid]:
    return [NULL_UUID] * count


@attrs.frozen
class _PendingDecision(Generic[T]):
    decision: Decision[T]
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
    """Chooses the log dirs of a number of new partitions of this broker, if it has several."""
    image: MetadataImage = attrs.field(factory=MetadataImage)
    answers: AnswerCache = attrs.field(init=False)
    check_room: CheckRoom = ignore
    loop: Loop = attrs.field(factory=Loop)
    writes_snapshots: bool = False
    """False until the partitions follow: before that the log may be needed, see `deleted_topic_ids`."""
    follow: Follower = _no_partitions
    """Applies a change to the partitions of this node, in slices; a new topic is not visible before that."""
    is_alone: bool = True
    """True if this broker is the whole cluster, and always will be."""
    check_listeners: CheckListeners = ignore
    """Checks changed configurations of this broker's listeners before they are accepted."""
    _watchers: list[Watcher] = attrs.field(factory=list)
    _delegation_tokens: DelegationTokens | None = None
    """None until it is needed."""
    _dynamic_names: Set[str] = frozenset()
    """The names of the dynamic configurations after their last change."""
    _read_to: int = 0
    """The offset up to which the image has the log."""
    _loaded_to: int = 0
    """The end offset of the snapshot that this start has loaded."""
    _snapshots: SnapshotSchedule = attrs.field(init=False)
    _pending: deque[_PendingDecision[Any]] = attrs.field(factory=deque)
    _is_loaded: bool = False
    """True after the replay at the start, whose records were reported when they were written."""
    _is_working: bool = False
    _has_news: bool = False
    """True if a change was requested, or the log has grown, since the log was last read."""

    def __attrs_post_init__(self) -> None:
        self.answers = AnswerCache(self.image)
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
        """Replays the log, or begins it at the first start. The next step is the broker's registration
        (`bootstrap.register`).

        Raises StorageError, CorruptLogError, ProtocolError (a record that is unknown to this version).
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
        at_once(service.decide(Decision(bootstrap_records)))
        return service

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

    # -- look-ups

    def topic(self, name: str) -> TopicImage | None:
        return self.image.topics.get(name)

    def topic_id(self, name: str) -> Uuid | None:
        topic = self.image.topics.get(name)
        return topic.topic_id if topic is not None else None

    def topic_values(self, topic: str) -> Mapping[str, Value]:
        """The effective value of every topic configuration, by Kafka's names."""
        return self.state.topic_values(topic)

    async def deleted_topic_ids(self) -> set[Uuid]:
        """The ids of topics deleted since the last snapshot; earlier deletions were already applied to the partitions.

        Reads the log, which few starts need.
        """
        found: set[Uuid] = set()
        offset = self._loaded_to
        # Records that others append meanwhile must not get into the image before the partitions follow it.
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

        It is made at the first use, so that a broker without tokens does not need it.
        """
        secret_key = self.config.delegation_token_secret_key
        if self._delegation_tokens is None and secret_key is not None:
            from kwire.metadata.delegation_tokens import DelegationTokens

            tokens = self._delegation_tokens = DelegationTokens(self.image.access.delegation_tokens, secret_key)
            self.watch(lambda changes: tokens.follow(changes.access.delegation_tokens))
        return self._delegation_tokens

    # -- changes

    async def shorten_log(self) -> None:
        """Writes a snapshot at the end of a start, if the log has become long.

        Without it, the log of a broker that never runs for long would have the records of each of its starts.
        """
        assert not self._is_working, "nothing changes the metadata yet"
        if self._snapshots.is_long:
            await self._write_snapshot()

    @overload
    async def change(self, rule: Rule[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def change(self, rule: PlainRule[P], *args: P.args, **kwargs: P.kwargs) -> None: ...

    async def change(self, rule: Any, *args: Any, **kwargs: Any) -> Any:
        """Carries out a change after all earlier ones: `rule` is called with the cluster's state and these arguments.

        When this returns the rule's response, the records are durable and applied, and the watchers have been called.
        The change is carried out even if the caller is cancelled. Raises KafkaError as the rule does, and with
        KAFKA_STORAGE_ERROR if the log cannot be written, or has no room for new partitions; nothing has changed then.
        """
        try:
            return await self.decide(Decision(rule, args, kwargs))
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be written: {error}") from error

    async def decide(self, decision: Decision[T]) -> T:
        """Carries out a decision, as `change` does. Raises OSError if the log cannot be written."""
        pending = _PendingDecision(decision)
        self._pending.append(pending)
        self._work()
        return (await pending.future).unwrap()

    def _work(self) -> None:
        """Starts the work, unless it runs: a change was requested, or the log has new records."""
        self._has_news = True
        if not self._is_working:
            self._is_working = True
            drive(self._work_off())

    async def _work_off(self) -> None:
        try:
            while self._pending or self._read_to != self.log.end_offset:
                if self._pending:
                    pending = self._pending.popleft()
                    pending.future.set(await acapture(self._carry_out, pending.decision))
                else:
                    read_to, self._has_news = self._read_to, False
                    await self._follow_others()
                    if self._read_to == read_to and not self._pending and not self._has_news:
                        break  # The log cannot be read now: its next news, or the next change, tries again.
                if self.writes_snapshots and self._snapshots.is_due(now_ms=self.clock.now_ms()):
                    await self._write_snapshot()
        finally:
            self._is_working = False

    def stop_following(self) -> None:
        """Detaches the partitions of this node, which are about to close, from later decisions.

        Otherwise a role that ends could make a coordinator append to its log, after the mark of a clean stop.
        """
        self.follow = _no_partitions
        self._watchers.clear()

    async def _follow_others(self) -> None:
        try:
            await self._catch_up()
        except OSError as error:
            log.error("the partitions of this node cannot follow a change of the metadata: %s", error)

    async def _lacked_records(self) -> bool:
        """Returns True if the image lacked records that another writer had appended. It has them afterwards."""
        read_to = self._read_to
        await self._follow_others()
        return self._read_to != read_to

    async def _carry_out(self, decision: Decision[T]) -> T:
        """Appends the records, and decides again if another writer has appended first; the only place for both.

        That holds for refusals, and for decisions that change nothing, too: another node may have created the topic
        that this one does not find. In Kafka, only the controller decides, which has all records.
        """
        while True:
            try:
                records, answer = decision.on(self.state)
            except KafkaError:
                if await self._lacked_records():
                    continue
                raise
            if not records:
                if await self._lacked_records():
                    continue
                return answer
            self._check_room(records)
            # In the same append, so that no crash leaves a partition without a log dir. A broker that is separate from
            # its controller must report the log dirs of its replicas (AssignReplicasToDirs, KIP-858).
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
        """Refuses changes that take disk space permanently. Deletions, and changes of leaders, may use the reserve."""
        new_partitions = sum(isinstance(it, PartitionRecord) and it.partition_epoch == 0 for it in records)
        if not new_partitions and not isinstance(records[0], ProducerIdsRecord):
            return
        try:
            self.check_room(new_partitions)
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
        """The input of the controller's rules."""
        return ClusterState(
            image=self.image,
            config=self.config,
            configs=self.configs,
            new_id=self.clock.uuid,
            now_ms=self.clock.now_ms(),
            end_offset=self._read_to,
            is_alone=self.is_alone,
            check_listeners=self.check_listeners,
        )

    async def _write_snapshot(self) -> None:
        """Writes a snapshot between two changes, so that the image does not change; new changes wait."""
        self._snapshots.restart(now_ms=self.clock.now_ms())
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
        """Loads the snapshot and the log at the start. Raises StorageError, CorruptLogError, ProtocolError."""
        snapshot = await self.log.read_snapshot()
        if snapshot is not None:
            changes = snapshot.apply_to(self.image)
            self._read_to = self._loaded_to = snapshot.end_offset
            if changes.configures_this_broker(self.node_id):
                self._configure()
        await self._catch_up()
        self._is_loaded = True
        self._log_ignored(self.image.configs)

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
        """Reads a snapshot that has replaced unread records. Returns the records that the image lacks."""
        snapshot = await self.log.read_snapshot()
        assert snapshot is not None, "the log begins where a snapshot ends"
        log.info("the metadata log was cut: going on at the snapshot of offset %d", snapshot.end_offset)
        target = MetadataImage()
        snapshot.apply_to(target)
        records = list(difference_records(self.image, target))
        return ((snapshot.end_offset - 1, record) for record in records), snapshot.end_offset

    async def _apply(self, records: Iterable[tuple[int, MetadataRecord]], read_to: int) -> None:
        """Applies the records read up to that offset. Raises OSError if the partitions could not follow."""
        changes = Changes()
        slices = Slices(self.loop, RECORDS_PER_SLICE)
        for offset, record in records:
            self.image.apply(record, offset=offset, changes=changes)
            await slices.after(1)
        self._read_to = read_to
        if changes.configures_this_broker(self.node_id):
            self._configure()
        if self._is_loaded:
            self._log_ignored(changes.configs)
            _log_unclean_elections(changes)
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
        self._log_ineffective()
        try:
            config = ServerConfig.from_properties(self.configs.effective)
        except ConfigError as error:
            # Each value is valid, and refused if it does not fit the others: another version may have accepted it.
            log.warning("the configurations in the metadata log are not followed: %s", error)
            return
        self.config = attrs.evolve(
            config,
            # Values from command-line flags and the system, which do not change while the broker runs.
            properties=self.config.properties,
            defaults=self.config.defaults,
            listeners=self.config.listeners,
            log_dirs=self.config.log_dirs,
            metadata_log_dir=self.config.metadata_log_dir,
        )

    def _log_ignored(self, resources: Iterable[tuple[int, str]]) -> None:
        """Logs topic and group configurations in the log that are not followed, since another version accepted them."""
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
                    shown(name),
                    why,
                )

    def _log_ineffective(self) -> None:
        """Logs names without effect and unknown names when they appear, as for a configuration file."""
        configured = {*self.configs.dynamic_default, *self.configs.dynamic_broker}
        for warning in warnings_about(configured - self._dynamic_names):
            log.warning("%s", warning)
        for name, why in self.configs.refused.items():
            if name not in self._dynamic_names:
                log.warning("the metadata log has a configuration that is not followed: %s; change or remove it", why)
        self._dynamic_names = configured | self.configs.refused.keys()


def _log_unclean_elections(changes: Changes) -> None:
    for it in changes.unclean_elections:
        if it.leader == it.last_leader:
            continue  # It was the last one in sync, so no other replica has a record that it lacks.
        log.warning(
            "unclean election: partition %d of topic %s, which broker %d led, is led by broker %d, which was not in "
            "sync: acknowledged records that broker %d lacks are lost",
            it.partition,
            shown(it.topic),
            it.last_leader,
            it.leader,
            it.leader,
        )
