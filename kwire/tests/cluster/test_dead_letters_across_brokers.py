"""A dead letter goes to the broker that leads the partition of the dead-letter topic, over a real connection."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kwire_protocol.messages.share_fetch import FetchPartition as SharedPartition
from kwire_protocol.messages.share_fetch import FetchTopic as SharedTopic
from kwire_protocol.messages.share_fetch import ShareFetchRequest
from kwire_protocol.records import Record, build_batch, iter_headers, iter_records
from kwire_protocol.wire import Uuid

from kwire.metadata.image import ConfigResourceType
from kwire.share.leader.dead_letters import ENABLED
from testkit.basics.waiting import eventually
from testkit.cluster.open_cluster import SETTINGS, OpenCluster
from testkit.raw.client import RawClient
from testkit.raw.share_requests import REJECT

DLQ = "dlq.g"
NODES = (1, 2, 3)
PARTITIONS = 6
LETTER_PARTITIONS = 5
"""Not as many, so that some have another leader, wherever the first ones are."""


def create(client: RawClient, name: str, partitions: int, **configs: str) -> Uuid:
    settings = [CreatableTopicConfig(key, value) for key, value in configs.items()]
    (result,) = client.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=settings)]), 7).topics
    assert result.error_code == 0, result.error_message
    topic_id: Uuid = result.topic_id
    return topic_id


def letters(client: RawClient, index: int) -> list[Record]:
    request = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(DLQ, partitions=[FetchPartition(index, -1, 0)])])
    request.topics[0].partitions[0].partition_max_bytes = 1 << 20
    (topic,) = client.call(request, 12).responses
    records = memoryview(bytes(topic.partitions[0].records or b""))
    return [record for position, _ in iter_headers(records) for record in iter_records(records, position)]


def are_there(client: RawClient, index: int, expected: set[bytes]) -> bool:
    """The values are the numbers of the partitions from which they come."""
    found = letters(client, index)
    assert [it.value for it in found] == [dict(it.headers)["__dlq.errors.partition"] for it in found]
    return {it.value for it in found} == expected


def reject_one_record(client: RawClient, topic_id: Uuid, index: int) -> None:
    batch = build_batch([Record(timestamp=1000, key=b"k", value=b"%d" % index)])
    data = TopicProduceData("t", partition_data=[PartitionProduceData(index, batch)])
    (produced,) = client.call(ProduceRequest(None, 1, 1000, [data]), 9).responses
    assert produced.partition_responses[0].error_code == 0
    shared = SharedTopic(topic_id, [SharedPartition(index)])
    fetched = client.call(ShareFetchRequest("g", "m", 0, 10_000, 1, 1 << 20, 500, 500, 0, False, [shared]), 2)
    assert fetched.responses[0].partitions[0].acquired_records, fetched
    rejected = AcknowledgePartition(index, [AcknowledgementBatch(0, 0, [REJECT])])
    acked = client.call(ShareAcknowledgeRequest("g", "m", -1, False, [AcknowledgeTopic(topic_id, [rejected])]), 2)
    assert acked.responses[0].partitions[0].error_code == 0


def test_letters_go_to_the_leaders_of_their_partitions(tmp_path: Path) -> None:
    cluster = OpenCluster(tmp_path, SETTINGS)
    try:
        for node_id in NODES:
            cluster.start(node_id)
        eventually(lambda: all(cluster.in_service(it) == list(NODES) for it in NODES), "all nodes are in service")
        with RawClient(cluster.nodes[1].address) as client:
            topic_id = create(client, "t", PARTITIONS)
            create(client, DLQ, LETTER_PARTITIONS, **{ENABLED: "true"})
            configs = {"errors.deadletterqueue.topic.name": DLQ, "errors.deadletterqueue.copy.record.enable": "true"}
            group = AlterConfigsResource(
                ConfigResourceType.GROUP, "g", [AlterableConfig(key, 0, value) for key, value in configs.items()]
            )
            assert client.call(IncrementalAlterConfigsRequest([group]), 1).responses[0].error_code == 0
        eventually(
            lambda: all(len(cluster.leaders(it, DLQ)) == LETTER_PARTITIONS for it in NODES), "they know the topics"
        )
        eventually(
            lambda: all("g" in str(cluster.node(it).inner.metadata.image.configs) for it in NODES), "and the group"
        )
        cluster.node(1).run(lambda it: it.initialize("g", {topic_id: [(index, 0, 0) for index in range(PARTITIONS)]}))
        sources, targets = cluster.leaders(1, "t"), cluster.leaders(1, DLQ)
        leaders = [targets[index % LETTER_PARTITIONS] for index in range(PARTITIONS)]
        assert sources != leaders, "else nothing is tested"
        for index, leader in enumerate(sources):
            with RawClient(cluster.nodes[leader].address) as client:
                reject_one_record(client, topic_id, index)
        for index, leader in enumerate(targets):
            expected = {b"%d" % it for it in range(index, PARTITIONS, LETTER_PARTITIONS)}
            with RawClient(cluster.nodes[leader].address) as client:
                eventually(partial(are_there, client, index, expected), "the letters are there")
    finally:
        for node_id in list(cluster.nodes):
            cluster.stop(node_id)
