"""Whatever brokers, leaders and operators do in whatever order, states follow on each other as in the tables."""

from __future__ import annotations

import re

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kwire_protocol.internal.metadata_brokers import RegisterBrokerRecord
from kwire_protocol.internal.metadata_configs import FeatureLevelRecord
from kwire_protocol.internal.metadata_topics import PartitionRecord, RemoveTopicRecord, TopicRecord

from devtools.places import REPOSITORY
from devtools.suite.tiers import examples
from kwire.metadata.controller import brokers
from kwire.metadata.controller.partitions.isr_changes import IsrProposal, change_isrs
from kwire.metadata.controller.partitions.leader_elections import balance_leaders
from kwire.metadata.controller.partitions.placement import partition_record
from kwire.metadata.controller.partitions.states import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionState,
    ReplicaState,
    partition_state,
    replica_state,
)
from kwire.metadata.features import ELR_VERSION
from kwire.metadata.image import NO_LEADER, Changes, PartitionRegistration
from testkit.metadata.image_cluster import TOPIC_ID, Cluster
from testkit.metadata.reassigning import reassign

NODES = (1, 2, 3, 4)
MOST_PARTITIONS = 3

nodes = st.sampled_from(NODES)
indexes = st.integers(0, MOST_PARTITIONS - 1)
some_nodes = st.lists(nodes, min_size=1, max_size=4, unique=True)


class Transitions(RuleBasedStateMachine):
    """Four brokers and one topic, whose image takes each decision at once."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.cluster.register(4)
        self.partitions: dict[int, PartitionState] = {}
        self.replicas: dict[tuple[int, int], ReplicaState] = {}
        self.epochs: dict[int, tuple[int, int]] = {}

    def _partition(self, index: int) -> PartitionRegistration | None:
        topic = self.cluster.image.topics.get("t")
        return topic.partitions[index] if topic is not None and index < len(topic.partitions) else None

    def _is_known(self, node_id: int) -> bool:
        return node_id in self.cluster.image.brokers

    @initialize(has_elr=st.booleans())
    def begin(self, has_elr: bool) -> None:
        self.cluster.take([FeatureLevelRecord(ELR_VERSION, int(has_elr))])

    # Lives

    @rule(node_id=nodes)
    def a_broker_starts(self, node_id: int) -> None:
        self.cluster.register(node_id)

    @rule(node_id=nodes)
    def a_broker_serves(self, node_id: int) -> None:
        if self._is_known(node_id):
            self.cluster.unfence(node_id)

    @rule(node_ids=some_nodes)
    def brokers_end(self, node_ids: list[int]) -> None:
        self.cluster.fence(*node_ids)

    @rule(node_id=nodes)
    def a_broker_shuts_down(self, node_id: int) -> None:
        if self._is_known(node_id):
            self.cluster.shut_down(node_id)

    @rule(node_id=nodes)
    def a_broker_is_forgotten(self, node_id: int) -> None:
        registered = self.cluster.image.brokers.get(node_id)
        if registered is not None and registered.fenced:
            self.cluster.take(brokers.unregister(self.cluster.state, node_id))

    # Topics

    @rule(replicas=some_nodes)
    def a_partition_is_added(self, replicas: list[int]) -> None:
        if "t" not in self.cluster.image.topics:
            self.cluster.take([TopicRecord("t", TOPIC_ID)])
        is_live = {it.broker_id for it in self.cluster.image.live_brokers()}.__contains__
        if (
            len(self.cluster.partitions) < MOST_PARTITIONS
            and all(map(self._is_known, replicas))
            and any(map(is_live, replicas))
        ):
            index = len(self.cluster.partitions)
            self.cluster.take([partition_record(self.cluster.image, TOPIC_ID, index, replicas)])

    @precondition(lambda self: "t" in self.cluster.image.topics)
    @rule()
    def the_topic_is_deleted(self) -> None:
        self.cluster.take([RemoveTopicRecord(TOPIC_ID)])

    # Leaders and operators

    @rule(index=indexes, isr=st.sets(nodes))
    def a_leader_changes_its_isr(self, index: int, isr: set[int]) -> None:
        known = self._partition(index)
        if known is None or known.leader == NO_LEADER:
            return
        epochs = {it: self.cluster.image.brokers[it].broker_epoch for it in {*isr, known.leader} if self._is_known(it)}
        proposal = IsrProposal(TOPIC_ID, index, known.leader_epoch, known.partition_epoch, epochs)
        records, _ = change_isrs(self.cluster.state, known.leader, [proposal])
        self.cluster.take(records)

    @rule(index=indexes, replicas=st.none() | some_nodes)
    def an_operator_reassigns_or_cancels(self, index: int, replicas: list[int] | None) -> None:
        reassign(self.cluster, replicas, index=index)

    @rule()
    def leaders_are_balanced(self) -> None:
        self.cluster.take(balance_leaders(self.cluster.state))

    # What holds

    @invariant()
    def states_follow_the_tables(self) -> None:
        image = self.cluster.image
        for index in range(MOST_PARTITIONS):
            now = partition_state(image, TOPIC_ID, index)
            before = self.partitions.get(index, PartitionState.NON_EXISTENT)
            assert now is before or now in PARTITION_TRANSITIONS[before], f"{before} -> {now}"
            self.partitions[index] = now
            for node_id in NODES:
                replica = replica_state(image, self._partition(index), node_id)
                former = self.replicas.get((index, node_id), ReplicaState.NON_EXISTENT)
                assert replica is former or replica in REPLICA_TRANSITIONS[former], f"{former} -> {replica}"
                self.replicas[index, node_id] = replica

    @invariant()
    def leaders_are_in_sync_and_in_service(self) -> None:
        for index in range(MOST_PARTITIONS):
            known = self._partition(index)
            if known is None:
                self.epochs.pop(index, None)
                continue
            assert set(known.isr) <= set(known.replicas)
            in_service = {it for it in known.isr if self._is_known(it) and not self.cluster.image.brokers[it].fenced}
            assert known.leader == NO_LEADER or set(known.isr) == in_service, "who ends leaves the ISR, if others lead"
            if known.leader != NO_LEADER:
                assert known.leader in known.isr
                assert not self.cluster.image.brokers[known.leader].fenced
            leader_epoch, partition_epoch = self.epochs.get(index, (-1, -1))
            assert known.leader_epoch >= leader_epoch
            assert known.partition_epoch >= partition_epoch
            self.epochs[index] = known.leader_epoch, known.partition_epoch


TestTransitions = Transitions.TestCase
TestTransitions.settings = settings(max_examples=examples(30), stateful_step_count=40)


def test_a_topic_is_new_until_its_logs_are_open() -> None:
    image = Cluster().image
    topic_id = b"u" * 16
    changes = Changes()
    offset = image.offset
    image.apply(TopicRecord("u", topic_id), offset=offset + 1, changes=changes)
    record = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
    )
    image.apply(record, offset=offset + 2, changes=changes)
    assert partition_state(image, topic_id, 0) is PartitionState.NEW
    image.publish(changes)
    assert partition_state(image, topic_id, 0) is PartitionState.ONLINE


def test_a_replica_in_a_log_dir_that_is_out_of_service_is_offline() -> None:
    cluster = Cluster()
    cluster.add(1)
    first, second = b"1" * 16, b"2" * 16
    cluster.take([RegisterBrokerRecord(broker_id=1, rack=None, fenced=False, log_dirs=[first])])
    (known,) = cluster.partitions
    for directory_id, state in ((first, ReplicaState.ONLINE), (second, ReplicaState.OFFLINE)):
        known = PartitionRegistration(1, 0, (1,), (1,), 0, directories=(directory_id,))
        assert replica_state(cluster.image, known, 1) is state


def test_the_docs_show_exactly_these_transitions() -> None:
    page = (REPOSITORY / "docs" / "cluster.md").read_text(encoding="utf-8")
    names = "|".join(it.value for it in PartitionState)
    shown = re.findall(rf"^\| ({names}) \| ({names}) \| (.*) \|$", page, re.MULTILINE)
    assert shown == [
        (before.value, after.value, why)
        for table in (PARTITION_TRANSITIONS, REPLICA_TRANSITIONS)
        for before, following in table.items()
        for after, why in following.items()
    ]
