"""Changes of a broker's configurations while it runs: their effect, also after a restart, and refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from testkit.basics.waiting import eventually
from testkit.raw import topics
from testkit.raw.client import RawClient
from testkit.raw.configs import ALL_BROKERS, BROKER, altered, change
from testkit.raw.nodes import NODE
from testkit.servers import brokers
from testkit.servers.brokers import RestartableBroker

CHECK_INTERVAL_MS = 100
EXPIRATION = "producer.id.expiration.ms"


@pytest.fixture(scope="module")
def checking_broker() -> Iterator[RestartableBroker]:
    """A broker that looks for expired producers all the time."""
    with brokers.restartable_broker(producer_id_expiration_check_interval_ms=str(CHECK_INTERVAL_MS)) as broker:
        yield broker


def send(client: RawClient, topic: str, producer_id: int) -> None:
    batch = build_batch(
        [Record(value=b"v", timestamp=int(time.time() * 1000))],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
    answer = client.call(ProduceRequest(None, -1, 10_000, [data]), 11)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def producers(client: RawClient, topic: str) -> set[int]:
    answer = client.call(DescribeProducersRequest([TopicRequest(topic, [0])]), 0)
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.NONE
    return {producer.producer_id for producer in partition.active_producers}


def test_an_expiration_of_producers_that_is_changed_acts_at_once_and_after_a_restart(
    checking_broker: RestartableBroker,
) -> None:
    topic = "expiring"
    topics.create(checking_broker.bootstrap, topic, replicas=[NODE])
    with RawClient(checking_broker.bootstrap) as client:
        send(client, topic, 71)
        assert producers(client, topic) == {71}
        change(client, BROKER, ALL_BROKERS, EXPIRATION, "50")
        eventually(lambda: producers(client, topic) == set(), "producer 71 has expired")
        change(client, BROKER, ALL_BROKERS, EXPIRATION, None)
        send(client, topic, 72)
        time.sleep(5 * CHECK_INTERVAL_MS / 1000)  # for what must not happen
        assert producers(client, topic) == {72}
        change(client, BROKER, ALL_BROKERS, EXPIRATION, "50")
    checking_broker.restart()
    with RawClient(checking_broker.bootstrap) as client:
        eventually(lambda: producers(client, topic) == set(), "producer 72 has expired")
        send(client, topic, 73)
        eventually(lambda: producers(client, topic) == set(), "producer 73 has expired")


def test_the_interval_of_the_search_for_expired_producers_is_fixed(checking_broker: RestartableBroker) -> None:
    with RawClient(checking_broker.bootstrap) as client:
        code, message = altered(
            client, BROKER, ALL_BROKERS, "producer.id.expiration.check.interval.ms", "5", validate_only=True
        )
    assert code == ErrorCode.INVALID_REQUEST
    assert "producer.id.expiration.check.interval.ms" in message
