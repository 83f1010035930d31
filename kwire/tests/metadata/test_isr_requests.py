"""AlterPartition: a leader requests another ISR."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from kwire_protocol.wire import Reader, Writer

from kwire.handlers import alter_partition
from kwire.handlers.apis import bound
from kwire.metadata.controller.partitions import isr_requests
from kwire.metadata.image import LeaderRecoveryState
from testkit.metadata.distant_log import answered
from testkit.metadata.elr_cluster import ElrCluster, cluster
from testkit.metadata.harness import FakeBroker, context, service
from testkit.metadata.image_cluster import TOPIC_ID, Cluster
from testkit.metadata.reassigning import reassign


def partition(it: Cluster, *isr: int, **changed: Any) -> AlterPartitionRequestPartitionData:
    known = it.partitions[0]
    epochs = [BrokerState(node, it.image.brokers[node].broker_epoch) for node in isr]
    data = AlterPartitionRequestPartitionData(
        0, known.leader_epoch, [], epochs, LeaderRecoveryState.RECOVERED, known.partition_epoch
    )
    return data.replace(**changed)


def request_isr(
    it: Cluster, *partitions: AlterPartitionRequestPartitionData, by: int = 1, topic_id: bytes = TOPIC_ID
) -> list[AlterPartitionResponsePartitionData]:
    epoch = it.image.brokers[by].broker_epoch
    topic = AlterPartitionRequestTopicData(topic_id, list(partitions))
    records, response = isr_requests.alter_partition(it.state, AlterPartitionRequest(by, epoch, [topic]))
    it.take(records)
    assert response.error_code == ErrorCode.NONE
    return response.topics[0].partitions


def behind() -> ElrCluster:
    """Node 3 has left the ISR, and is in service again."""
    it = cluster()
    it.fence(3)
    it.unfence(3)
    return it


def test_a_leader_gets_the_new_state_of_the_partition() -> None:
    it = behind()
    before = it.partitions[0]
    [answer] = request_isr(it, partition(it, 1, 2, 3))
    assert it.partitions[0].isr == (1, 2, 3)
    assert answer == AlterPartitionResponsePartitionData(
        0, ErrorCode.NONE, 1, before.leader_epoch, [1, 2, 3], LeaderRecoveryState.RECOVERED, before.partition_epoch + 1
    )


def test_what_is_so_already_is_answered_and_not_recorded() -> None:
    it = behind()
    before = it.partitions[0]
    [answer] = request_isr(it, partition(it, 2, 1))
    assert (answer.error_code, answer.isr, it.partitions[0]) == (ErrorCode.NONE, [1, 2], before)


def test_before_version_3_brokers_are_named_without_epochs() -> None:
    it = behind()
    [answer] = request_isr(it, partition(it, new_isr=[1, 2, 3]))
    assert (answer.error_code, answer.isr) == (ErrorCode.NONE, [1, 2, 3])


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"partition_index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 99}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 99}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"new_isr_with_epochs": [BrokerState(1, -1), BrokerState(9, -1)]}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": [BrokerState(2, -1)]}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": []}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": [BrokerState(1, -1), BrokerState(1, -1)]}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": LeaderRecoveryState.RECOVERING}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": [BrokerState(1, -1), BrokerState(3, 77)]}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, Any], code: ErrorCode) -> None:
    it = behind()
    before = it.partitions[0]
    [answer] = request_isr(it, partition(it, 1, 2, 3, **changed))
    assert (answer.error_code, it.partitions[0]) == (code, before)


def test_only_the_leader_is_heard() -> None:
    it = behind()
    [answer] = request_isr(it, partition(it, 1, 2, 3), by=2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_an_unknown_topic_is_reported_for_each_partition() -> None:
    it = behind()
    answers = request_isr(it, partition(it, 1), partition(it, 1, partition_index=1), topic_id=b"u" * 16)
    assert [answer.error_code for answer in answers] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2


def test_a_partition_is_requested_once() -> None:
    it = behind()
    answers = request_isr(it, partition(it, 1, 2, 3), partition(it, 1))
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert it.partitions[0].isr == (1, 2, 3)


def test_a_fenced_broker_does_not_join() -> None:
    it = cluster()
    it.fence(3)
    [answer] = request_isr(it, partition(it, 1, 2, 3))
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_that_goes_by_its_own_request_gets_the_error_that_another_one_was_elected() -> None:
    it = cluster(1, 2)
    assert reassign(it, [2, 3]) == ErrorCode.NONE
    [answer] = request_isr(it, partition(it, 1, 2, 3))
    assert answer == AlterPartitionResponsePartitionData(0, ErrorCode.NEW_LEADER_ELECTED)
    assert (it.partitions[0].leader, it.partitions[0].replicas) == (2, (2, 3))


def test_a_leader_recovers_from_an_unclean_election() -> None:
    it = cluster(1, min_isr=1)
    it.start(1, clean=False)
    assert it.partitions[0].leader_recovery_state == LeaderRecoveryState.RECOVERING
    recovering = partition(it, 1, leader_recovery_state=LeaderRecoveryState.RECOVERING)
    assert request_isr(it, recovering)[0].leader_recovery_state == LeaderRecoveryState.RECOVERING
    assert request_isr(it, partition(it, 1))[0].leader_recovery_state == LeaderRecoveryState.RECOVERED
    assert it.partitions[0].leader_recovery_state == LeaderRecoveryState.RECOVERED


@pytest.mark.parametrize("broker_id", [1, 9])
def test_an_earlier_start_of_a_broker_and_an_unknown_one_are_refused(broker_id: int) -> None:
    it = cluster()
    with pytest.raises(KafkaError) as raised:
        isr_requests.alter_partition(it.state, AlterPartitionRequest(broker_id, 77))
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("version", [2, 3])
def test_the_request_is_served(version: int) -> None:
    opened = service()
    broker: Any = FakeBroker(opened)
    epoch = opened.image.brokers[1].broker_epoch
    for broker_epoch, code in ((epoch, ErrorCode.NONE), (epoch - 1, ErrorCode.STALE_BROKER_EPOCH)):
        answer = answered(
            bound(alter_partition.handle, broker)(AlterPartitionRequest(1, broker_epoch), context(version))
        )
        writer = Writer()
        answer.write(writer, version)
        read = AlterPartitionResponse.read(Reader(writer.getvalue()), version)
        assert (read.error_code, read.topics) == (code, [])
