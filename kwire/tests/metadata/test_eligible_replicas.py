"""Eligible leader replicas (KIP-966): candidates when the ISR is empty, and after an unclean stop."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_brokers import RegisterBrokerRecord
from kwire_protocol.internal.metadata_configs import ConfigRecord
from kwire_protocol.internal.metadata_topics import ClearElrRecord
from kwire_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from kwire.metadata.controller import brokers
from kwire.metadata.controller.configs.config_changes import ConfigChange, Operation, alter_configs
from kwire.metadata.controller.feature_updates import update_features
from kwire.metadata.controller.partitions.eligible_replicas import eligible
from kwire.metadata.controller.partitions.leader_elections import elect_leaders
from kwire.metadata.features import ELR_VERSION
from kwire.metadata.image import NO_LEADER, ConfigResourceType, LeaderRecoveryState, PartitionRegistration
from kwire.metadata.snapshots import image_records
from testkit.metadata.elr_cluster import MIN_ISR, ElrCluster, cluster
from testkit.metadata.image_cluster import NODES, TOPIC_ID, Cluster
from testkit.metadata.reassigning import reassign

SAFE = 2


def test_who_leaves_an_isr_that_is_too_small_by_that_is_eligible() -> None:
    it = cluster()
    it.fence(3)
    assert it.now() == (1, (1, 2), (), ())
    it.fence(2)
    assert it.now() == (1, (1,), (2,), ())


def test_the_isr_may_be_empty_and_an_eligible_replica_leads_when_it_is_back() -> None:
    it = cluster()
    it.fence(3)
    it.fence(2)
    it.fence(1)
    assert it.now() == (NO_LEADER, (), (1, 2), (1,))
    it.start(3, clean=True)
    assert it.now() == (NO_LEADER, (), (1, 2), (1,)), "it was not in sync when more was committed"
    it.start(2, clean=True)
    assert it.now() == (2, (2,), (1,), ())
    assert it.partitions[0].leader_recovery_state == LeaderRecoveryState.RECOVERED


def test_nobody_is_eligible_any_more_when_enough_are_in_sync() -> None:
    it = cluster()
    it.fence(3)
    it.fence(2)
    it.start(3, clean=True)
    assert it.propose(1, 3) is ErrorCode.NONE
    assert it.now() == (1, (1, 3), (), ())


def test_an_unclean_start_takes_a_broker_out_of_the_elr() -> None:
    it = cluster()
    it.fence(3)
    it.fence(2)
    it.start(2, clean=False)
    assert it.now() == (1, (1,), (), ())


def test_an_unclean_start_of_a_broker_that_nobody_missed_takes_it_out_of_the_isr() -> None:
    it = cluster()
    it.start(1, clean=False)
    assert it.now() == (2, (2, 3), (), ())


def test_a_clean_start_needs_the_epoch_that_is_registered() -> None:
    it = cluster()
    it.fence(3)
    it.fence(2)
    registration = RegisterBrokerRecord(broker_id=2, rack=None, fenced=True, broker_epoch=it.image.offset + 1)
    it.take(brokers.register(it.state, registration, stopped_epoch=it.image.brokers[2].broker_epoch - 1))
    assert it.now() == (1, (1,), (), ())


def test_the_last_leader_leads_again_when_nobody_is_eligible_although_it_stopped_unclean() -> None:
    it = cluster()
    it.fence(3)
    it.fence(2)
    it.fence(1)
    it.start(1, clean=False)
    assert it.now() == (NO_LEADER, (), (2,), (1,)), "one that has everything may still come"
    it.start(2, clean=False)
    assert it.now() == (1, (1,), (), ()), "nobody can have everything"
    assert it.partitions[0].leader_recovery_state == LeaderRecoveryState.RECOVERING
    it.start(3, clean=False)
    assert it.propose(1, 3) is ErrorCode.NONE
    assert it.partitions[0].leader_recovery_state == LeaderRecoveryState.RECOVERED


def test_others_than_the_last_leader_do_not_lead_after_unclean_starts() -> None:
    it = cluster()
    for node in (3, 2, 1):
        it.fence(node)
    for node in (3, 2):
        it.start(node, clean=False)
    assert it.now() == (NO_LEADER, (), (1,), (1,))
    it.start(1, clean=False)
    assert it.now() == (1, (1,), (), ())


def test_a_single_replica_leads_again_at_once_after_a_kill() -> None:
    it = cluster(1, min_isr=1)
    it.start(1, clean=False)
    assert it.now() == (1, (1,), (), ())


def test_a_single_replica_that_stops_is_eligible_until_it_is_back() -> None:
    it = cluster(1, min_isr=1)
    it.shut_down(1)
    it.fence(1)
    assert it.now() == (NO_LEADER, (), (1,), (1,))
    it.start(1, clean=True)
    assert it.now() == (1, (1,), (), ())


def test_an_unclean_election_is_the_last_resort() -> None:
    it = cluster()
    it.allow_unclean_election()
    it.fence(3)
    it.fence(2)
    it.start(3, clean=True)
    it.fence(1)
    assert it.now() == (3, (3,), (), ())
    assert it.partitions[0].leader_recovery_state == LeaderRecoveryState.RECOVERING


def test_an_unclean_election_that_is_requested_prefers_an_eligible_replica() -> None:
    def request_election() -> None:
        records, _ = elect_leaders(it.state, ElectLeadersRequest(1, [TopicPartitions("t", [0])]))
        it.take(records)

    it = cluster()
    for node in (3, 2, 1):
        it.fence(node)
    it.take(brokers.unfence(it.state, 3, it.image.brokers[3].broker_epoch))
    request_election()
    assert it.now() == (3, (3,), (), ())


def test_brokers_that_end_together_are_all_eligible_but_those_that_have_lost_records() -> None:
    it = cluster()
    it.fence(3)
    it.fence(1, 2)
    assert it.now() == (NO_LEADER, (), (1, 2), (1,))
    it.start(2, clean=False)
    assert it.now() == (NO_LEADER, (), (1,), (1,))


def test_with_one_required_replica_nobody_else_is_eligible_once_one_is_in_sync() -> None:
    it = cluster(1, 2, min_isr=1)
    it.fence(1, 2)
    assert it.now() == (NO_LEADER, (), (1, 2), (1,))
    it.start(2, clean=True)
    assert it.now() == (2, (2,), (), ()), "it commits alone"


def test_a_failed_log_dir_makes_its_replicas_neither_in_sync_nor_eligible() -> None:
    it = cluster()
    it.fence(3)
    epoch = it.image.brokers[1].broker_epoch
    it.take(brokers.give_up_replicas(it.state, 1, epoch, [(TOPIC_ID, 0)]))
    assert it.now() == (2, (2,), (), ())
    epoch = it.image.brokers[2].broker_epoch
    it.take(brokers.give_up_replicas(it.state, 2, epoch, [(TOPIC_ID, 0)]))
    assert it.now() == (2, (2,), (), ()), "nobody else can lead it"


def test_a_broker_that_was_forgotten_is_not_eligible_when_it_comes_again() -> None:
    it = cluster()
    it.fence(3)
    it.fence(2)
    it.take(brokers.unregister(it.state, 2))
    it.start(2, clean=True)
    assert it.now() == (1, (1,), (), ())


def test_who_is_no_replica_any_more_is_not_eligible() -> None:
    it = cluster()
    it.fence(3)
    it.fence(2)
    assert reassign(it, [1]) == ErrorCode.NONE
    assert it.now() == (1, (1,), (), ())
    assert it.partitions[0].replicas == (1,)


def test_only_replicas_are_eligible() -> None:
    known = PartitionRegistration(leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=0)
    assert eligible(known, replicas=(3, 1), isr=(), unclean=()) == (3, 1)


def test_a_reassignment_can_be_cancelled_if_an_old_replica_is_eligible() -> None:
    it = cluster(1, 2)
    assert reassign(it, [3]) == ErrorCode.NONE
    it.fence(1, 2)
    assert it.now() == (NO_LEADER, (), (1, 2), (1,))
    assert reassign(it, None) == ErrorCode.NONE
    assert (it.now(), it.partitions[0].replicas) == ((NO_LEADER, (), (1, 2), (1,)), (1, 2))


@pytest.mark.parametrize("resource", [(ConfigResourceType.TOPIC, "t"), (ConfigResourceType.BROKER, "")])
def test_another_min_insync_replicas_makes_nobody_eligible(resource: tuple[int, str]) -> None:
    it = cluster()
    it.add(*NODES)
    it.fence(3)
    it.fence(2)
    it.propose(1, index=1)
    it.take([])
    change = ConfigChange(*resource, [(MIN_ISR, Operation.SET, "1")])
    records, [outcome] = alter_configs(it.state, [change], validate_only=False)
    assert outcome.code is ErrorCode.NONE
    it.take(records)
    assert it.now() == (1, (1,), (), ())


def test_another_min_insync_replicas_changes_nothing_where_nobody_leads() -> None:
    it = cluster()
    for node in (3, 2, 1):
        it.fence(node)
    change = ConfigChange(ConfigResourceType.TOPIC, "t", [(MIN_ISR, Operation.SET, "1")])
    it.take(alter_configs(it.state, [change], validate_only=False)[0])
    assert it.now() == (NO_LEADER, (), (1, 2), (1,))


def test_kafkas_own_record_empties_the_elrs() -> None:
    it = cluster()
    it.fence(3)
    it.fence(2)
    it.take([ClearElrRecord("another")])
    assert it.now() == (1, (1,), (2,), ())
    it.take([ClearElrRecord("")])
    assert it.now() == (1, (1,), (), ())


@pytest.mark.parametrize(
    ("name", "operations", "replaces", "message"),
    [
        ("1", [(MIN_ISR, Operation.SET, "2")], False, "Broker-level min.insync.replicas cannot be altered"),
        ("1", [(MIN_ISR, Operation.DELETE, None)], False, "Broker-level min.insync.replicas cannot be altered"),
        ("", [(MIN_ISR, Operation.DELETE, None)], False, "Cluster-level min.insync.replicas cannot be removed"),
        ("", [("log.retention.ms", Operation.SET, "1")], True, "Cluster-level min.insync.replicas cannot be removed"),
    ],
)
def test_brokers_have_one_min_insync_replicas(
    name: str, operations: Sequence[tuple[str, int, str | None]], replaces: bool, message: str
) -> None:
    it = cluster()
    it.take([ConfigRecord(ConfigResourceType.BROKER, "", MIN_ISR, "1")])
    change = ConfigChange(ConfigResourceType.BROKER, name, operations, replaces)
    records, [outcome] = alter_configs(it.state, [change], validate_only=False)
    assert (records, outcome.code) == ([], ErrorCode.INVALID_CONFIG)
    assert str(outcome.message).startswith(message)


def level(it: ElrCluster, value: int) -> None:
    kind = 1 if value else SAFE
    records, _ = update_features(it.state, UpdateFeaturesRequest(0, [FeatureUpdateKey(ELR_VERSION, value, True, kind)]))
    it.take(records)


def supporting() -> ElrCluster:
    it = cluster()
    for node in NODES:
        known = it.image.brokers[node]
        it.image.brokers[node] = attrs.evolve(known, features={ELR_VERSION: (0, 1)})
    return it


def test_a_downgrade_makes_those_that_may_lead_next_the_isr() -> None:
    it = supporting()
    it.add(*NODES, isr=[1])
    for node in (3, 2, 1):
        it.fence(node)
    level(it, 0)
    assert it.now() == (NO_LEADER, (1, 2), (), ())
    assert it.image.features[ELR_VERSION] == 0
    it.unfence(2)
    assert it.now() == (2, (2,), (), ())


def test_a_downgrade_forgets_who_is_eligible() -> None:
    it = supporting()
    it.fence(3)
    it.fence(2)
    level(it, 0)
    assert it.now() == (1, (1,), (), ())


def test_an_upgrade_records_min_insync_replicas_for_all_and_drops_the_brokers_own() -> None:
    it = supporting()
    level(it, 0)
    it.take([ConfigRecord(ConfigResourceType.BROKER, "2", MIN_ISR, "3")])
    level(it, 1)
    assert it.image.config(ConfigResourceType.BROKER, "") == {MIN_ISR: "1"}
    assert it.image.config(ConfigResourceType.BROKER, "2") == {}


def test_after_an_upgrade_the_last_member_of_an_isr_can_lead_again() -> None:
    it = supporting()
    level(it, 0)
    it.fence(3)
    it.fence(2)
    it.fence(1)
    assert it.now() == (NO_LEADER, (1,), (), ())
    level(it, 1)
    assert it.now() == (NO_LEADER, (), (1,), (1,))
    it.start(1, clean=False)
    assert it.now() == (1, (1,), (), ())


def test_a_snapshot_has_them() -> None:
    it = cluster()
    for node in (3, 2, 1):
        it.fence(node)
    copy = Cluster.__new__(Cluster)
    copy.image = type(it.image)()
    copy.take(list(image_records(it.image)))
    assert copy.partitions == it.partitions


class Decisions(RuleBasedStateMachine):
    """The set of replicas with all that is committed comes from the steps here, and never from the records."""

    def __init__(self) -> None:
        super().__init__()
        self.it = cluster()
        self.have_everything = {*NODES}

    @property
    def partition(self) -> PartitionRegistration:
        return self.it.partitions[0]

    def commit(self) -> None:
        """Commits as much as can be, after each change: then only those in sync have everything."""
        known = self.partition
        if known.leader != NO_LEADER and len(known.isr) >= self.it.min_isr:
            self.have_everything = {*known.isr}
        else:
            self.have_everything |= {*known.isr}

    @rule(broker_id=st.sampled_from(NODES))
    def end(self, broker_id: int) -> None:
        self.it.fence(broker_id)

    @rule(broker_id=st.sampled_from(NODES), clean=st.booleans())
    def start(self, broker_id: int, clean: bool) -> None:
        if not clean:
            self.have_everything.discard(broker_id)
        before = self.partition
        self.it.start(broker_id, clean=clean)
        after = self.partition
        if after.leader not in (before.leader, NO_LEADER) and after.leader not in self.have_everything:
            assert not self.have_everything, "one that has everything may still come"
            assert after.leader_recovery_state == LeaderRecoveryState.RECOVERING
            assert after.leader in (*before.last_known_elr, before.leader)

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule(isr=st.sets(st.sampled_from(NODES)))
    def propose(self, isr: set[int]) -> None:
        self.it.propose(*sorted({*isr, self.partition.leader}))

    @rule(broker_id=st.sampled_from(NODES))
    def shut_down(self, broker_id: int) -> None:
        self.it.shut_down(broker_id)

    @invariant()
    def eligible_leaders_have_everything(self) -> None:
        self.commit()
        known = self.partition
        assert {*known.isr, *known.eligible_leader_replicas} <= self.have_everything
        assert not {*known.isr} & {*known.eligible_leader_replicas}
        assert not known.eligible_leader_replicas or len(known.isr) < self.it.min_isr
        assert (known.leader == NO_LEADER) == (not known.isr)
        assert (known.leader == NO_LEADER) == bool(known.last_known_elr)


TestDecisions = Decisions.TestCase
TestDecisions.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
