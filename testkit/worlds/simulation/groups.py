"""The group of a run, of one kind: its members, what is to be done before they begin, and what is true at the end."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

import attrs
from kwire_protocol import letter_headers
from kwire_protocol.errors import RETRIABLE
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadStateData,
)
from kwire_protocol.records import Record

from kwire.metadata.image import ConfigResourceType
from kwire.names.topic_names import SHARE_GROUP_STATE
from kwire.replicas.partition import Partition
from kwire.replicas.roles import Leader
from kwire.share.coordinator.state import NO_EPOCH, SharePartitionKey
from kwire.share.leader.led import LedSharePartition
from kwire.share.leader.share_partition import Status
from testkit.worlds.simulation.clients import SHARE, Again, Client, Cluster
from testkit.worlds.simulation.deliveries import LOCK_DURATION_MS, Deliveries, RecordId
from testkit.worlds.simulation.eligibility import Eligibility, PartitionId
from testkit.worlds.simulation.ledger import Ledger
from testkit.worlds.simulation.members import SESSION_TIMEOUT_MS, ClassicLife, ConsumerLife, Member, OwningLife
from testkit.worlds.simulation.node import Process
from testkit.worlds.simulation.share_members import ShareMember
from testkit.worlds.simulation.streams_members import CHANGELOG, StatefulLife, StreamsLife, StreamsWatcher

GROUP: Final = "group"
LETTERS: Final = "dlq.letters"
STATE_PARTITIONS: Final = 2
SHARE_WITH_STATE: Final = 0.5
"""The share of the streams groups with state."""

SETTINGS: Final = (
    f"group.min.session.timeout.ms={SESSION_TIMEOUT_MS}",
    *(
        f"group.{kind}.{name}"
        for kind in ("consumer", "share", "streams")
        for name in (
            f"min.session.timeout.ms={SESSION_TIMEOUT_MS}",
            f"session.timeout.ms={SESSION_TIMEOUT_MS}",
            "min.heartbeat.interval.ms=100",
            "heartbeat.interval.ms=100",
        )
    ),
    "group.initial.rebalance.delay.ms=0",
    "group.share.assignment.interval.ms=50",
    f"group.share.min.record.lock.duration.ms={LOCK_DURATION_MS}",
    f"group.share.record.lock.duration.ms={LOCK_DURATION_MS}",
    "group.share.initialize.retry.interval.ms=1000",
    "group.streams.assignment.interval.ms=50",
    "group.streams.initial.rebalance.delay.ms=100",
    "group.streams.num.standby.replicas=1",
    f"share.coordinator.state.topic.num.partitions={STATE_PARTITIONS}",
    "share.coordinator.state.topic.replication.factor=3",
    "share.coordinator.state.topic.min.isr=2",
    "share.coordinator.snapshot.update.records.per.snapshot=5",
    "share.coordinator.cold.partition.snapshot.interval.ms=700",
    "share.coordinator.state.topic.prune.interval.ms=500",
)


@attrs.define(eq=False)
class Truth:
    """The actual state of the cluster."""

    eligibility: Eligibility
    process: Callable[[int], Process | None]
    """Returns the process of a node."""
    topic: str

    def replica(self, index: int, node_id: int) -> Partition | None:
        process = self.process(node_id)
        found = [] if process is None else process.broker.partitions.by_name.get(self.topic, [])[index : index + 1]
        return found[0] if found and isinstance(found[0], Partition) else None

    def leads(self, index: int, node_id: int) -> bool:
        replica = self.replica(index, node_id)
        role = None if replica is None else replica.role
        leader = self.eligibility.leader((self.topic, index))
        return isinstance(role, Leader) and leader == (node_id, role.leader_epoch)

    def share_partition(self, index: int, node_id: int) -> LedSharePartition | None:
        replica, process = self.replica(index, node_id), self.process(node_id)
        if replica is None or process is None:
            return None
        return next((it for it in process.broker.sharing.share_partitions() if it.partition is replica), None)


@attrs.define(eq=False)
class SimGroup(ABC):
    ledger: Ledger
    truth: Truth
    partitions: int
    coordinates: Callable[[int], bool]
    """Returns True if that node is its coordinator."""
    chance: random.Random
    is_dear: ClassVar[bool] = False
    """It costs more, so the cluster has less to do otherwise."""

    @property
    def own_partitions(self) -> list[PartitionId]:
        """The partitions of topics that no other kind of group has. They may not exist yet."""
        return []

    def topics(self) -> list[CreatableTopic]:
        """The topics that it needs."""
        return []

    async def begin(self, cluster: Cluster) -> None:  # noqa: B027
        """Begins when the topics exist. Raises Again."""

    def has_begun(self, process: Process) -> bool:
        """True if that node has the group."""
        return True

    @abstractmethod
    def members(self, clusters: Sequence[Cluster], is_over: Callable[[], bool], since: float) -> list[Client]:
        """They stop when the faults are over, and the group has gone on since."""

    @abstractmethod
    def lacks(self, since: float) -> str | None:
        """Returns the things that the group has not done since then; None if it has made progress with everything."""

    async def end(self, cluster: Cluster, found: Sequence[dict[PartitionId, list[Record]]]) -> None:  # noqa: B027
        """`found` are all records of the topic, and what a reader of committed records sees."""


@attrs.define(eq=False, kw_only=True)
class OwningGroup(SimGroup):
    """Its members own partitions."""

    protocols: Sequence[type[OwningLife]]

    def members(self, clusters: Sequence[Cluster], is_over: Callable[[], bool], since: float) -> list[Client]:
        def stops() -> bool:
            return is_over() and self.lacks(since) is None

        return [
            Member(it, self.ledger, GROUP, self.partitions, self.protocols, stops, self.coordinates)
            for it in clusters[:2]
        ]

    def lacks(self, since: float) -> str | None:
        at = self.ledger.committed_at
        if all(at.get((GROUP, it), 0.0) > since for it in range(self.partitions)):
            return None
        return "the group does not commit everywhere"


@attrs.define(eq=False, kw_only=True)
class SharingGroup(SimGroup):
    """Its members share partitions."""

    is_dear: ClassVar[bool] = True
    is_committed: bool = attrs.field(init=False)
    """They get what is committed only."""
    has_letters: bool = attrs.field(init=False)
    deliveries: Deliveries = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.is_committed, self.has_letters = self.chance.random() < 0.5, self.chance.random() < 0.5
        self.deliveries = Deliveries(self.ledger)

    def topics(self) -> list[CreatableTopic]:
        enabled = CreatableTopicConfig("errors.deadletterqueue.group.enable", "true")
        return [CreatableTopic(LETTERS, 1, 3, configs=[enabled])] if self.has_letters else []

    @property
    def own_partitions(self) -> list[PartitionId]:
        letters = [(LETTERS, 0)] if self.has_letters else []
        return [*((SHARE_GROUP_STATE, it) for it in range(STATE_PARTITIONS)), *letters]

    async def begin(self, cluster: Cluster) -> None:
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed" if self.is_committed else "read_uncommitted",
            "errors.deadletterqueue.topic.name": LETTERS if self.has_letters else "",
        }
        resource = AlterConfigsResource(
            ConfigResourceType.GROUP, GROUP, [AlterableConfig(name, value=value) for name, value in configs.items()]
        )
        answer = await cluster.call(cluster.bootstrap[0], IncrementalAlterConfigsRequest([resource]))
        if answer.responses[0].error_code:
            raise Again(answer.responses[0].error_message)

    def has_begun(self, process: Process) -> bool:
        return process.broker.sharing.settings(GROUP).auto_offset_reset == "earliest"

    def members(self, clusters: Sequence[Cluster], is_over: Callable[[], bool], since: float) -> list[Client]:
        def stops() -> bool:
            return is_over() and self.lacks(since) is None

        return [
            ShareMember(
                it,
                self.ledger,
                self.deliveries,
                GROUP,
                self.truth,
                self.coordinates,
                is_over,
                stops,
            )
            for it in clusters[:2]
        ]

    def lacks(self, since: float) -> str | None:
        for index in range(self.partitions):
            key = self.truth.topic, index
            if self.deliveries.forgives(key):
                continue
            node_id, _ = self.truth.eligibility.leader(key) or (-1, -1)
            led = self.truth.share_partition(index, node_id) if self.truth.leads(index, node_id) else None
            if led is None or led.machine.status is not Status.ACTIVE:
                return f"nobody shares partition {index}"
            end = led.partition.last_stable_offset if self.is_committed else led.partition.high_watermark
            if led.machine.start_offset < end or led.writes:
                return f"{key} is done up to {led.machine.start_offset}, and ends at {end}"
            self.deliveries.settled_to[key] = led.machine.start_offset
        return None

    async def end(self, cluster: Cluster, found: Sequence[dict[PartitionId, list[Record]]]) -> None:
        read = found[self.is_committed]
        self.deliveries.check_delivered(read)
        for key in [it for it in self.deliveries.records if not self.deliveries.forgives(it)]:
            delivered = [*self.deliveries.records[key].values()]
            self.ledger.check_read({key: delivered}, found[0])
            if self.is_committed:
                self.ledger.check_no_aborted({key: delivered})
        for index in range(self.partitions):
            key = cluster.topic, index
            if not self.deliveries.forgives(key):
                self.deliveries.check_state(key, await cluster.persist(partial(self._state, cluster, index)))

    async def _state(self, cluster: Cluster, index: int) -> PartitionResult:
        key = SharePartitionKey(GROUP, cluster.topic_id, index)
        wanted = [ReadStateData(cluster.topic_id, [PartitionData(index, NO_EPOCH)])]
        answer = await cluster.call_coordinator(SHARE, key.text, ReadShareGroupStateRequest(GROUP, wanted))
        found: PartitionResult = answer.results[0].partitions[0]
        if found.error_code in RETRIABLE:
            raise Again(str(found.error_code))
        return found

    def check_letters(self, records: Sequence[Record]) -> None:
        self.deliveries.check_letters({self._origin(it) for it in records})

    def _origin(self, letter: Record) -> RecordId:
        headers = {name: value or b"" for name, value in letter.headers}
        topic, index = headers[letter_headers.ORIGIN_TOPIC].decode(), int(headers[letter_headers.ORIGIN_PARTITION])
        return (topic, index), int(headers[letter_headers.ORIGIN_OFFSET])


@attrs.define(eq=False, kw_only=True)
class StreamsGroup(OwningGroup):
    """Its members own the partitions of their active tasks."""

    is_dear: ClassVar[bool] = True
    protocols: Sequence[type[StreamsLife]] = attrs.field(init=False)
    _watchers: list[StreamsWatcher] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.protocols = [StatefulLife if self.chance.random() < SHARE_WITH_STATE else StreamsLife]

    @property
    def own_partitions(self) -> list[PartitionId]:
        return [(CHANGELOG, it) for it in range(self.partitions)] if self.protocols[0].is_stateful else []

    def members(self, clusters: Sequence[Cluster], is_over: Callable[[], bool], since: float) -> list[Client]:
        *those, another = clusters

        def stops() -> bool:
            return is_over() and self.lacks(since) is None

        watcher = StreamsWatcher(another, self.ledger, GROUP, self.coordinates, partitions=self.partitions, stops=stops)
        self._watchers.append(watcher)
        return [*super().members(those, is_over, since), watcher]

    def lacks(self, since: float) -> str | None:
        if all(it.stable_at > since for it in self._watchers):
            return super().lacks(since)
        return "the group is not stable"


KINDS: Final[Mapping[str, Callable[..., SimGroup]]] = {
    "classic": partial(OwningGroup, protocols=[ClassicLife]),
    "consumer": partial(OwningGroup, protocols=[ConsumerLife]),
    "both": partial(OwningGroup, protocols=[ClassicLife, ConsumerLife]),
    "share": SharingGroup,
    "streams": StreamsGroup,
}
"""A run has one of them."""

WEIGHTS: Final = {"classic": 2, "consumer": 2, "both": 2, "share": 2, "streams": 1}
"""The weight of each kind among the seeds."""
