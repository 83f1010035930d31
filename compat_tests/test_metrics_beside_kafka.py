"""kwire's metrics beside Apache Kafka's, which come over JMX: the same requests to both, the names and the counts.

Only counts, since Apache Kafka counts groups by state once a minute.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from devtools.apache_kafka import ApacheKafka, run_tool
from devtools.ports import free_port
from kwire.metrics.metric import Metric
from kwire.metrics.reading import METRICS
from kwire.testing import Broker
from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient
from testkit.raw.scrapes import scrape
from testkit.raw.share_requests import ACCEPT, RELEASE, ShareRequests, acquired
from testkit.raw.simple_requests import produce

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
BESIDES = {
    "kafka.server:type=BrokerTopicMetrics,name=TotalShareFetchRequestsPerSec": "Apache Kafka counts topics",
    "kafka.server:type=ShareGroupMetrics,name=PartitionLoadTimeMs": "a time",
}
"""Counters whose values differ, and why."""

Found = dict[tuple[str, str], float]
"""(MBean, attribute) -> value."""


def work(bootstrap: str) -> None:
    """The same for both: a group of each kind, offsets, and records of a share group."""
    with RawClient(bootstrap) as client:
        client.call(CreateTopicsRequest([CreatableTopic("t", 2, 1)], 10_000), 7)
        for group_id in ("classic", "consumer", "share"):
            eventually(partial(_is_found, client, group_id), "there is a coordinator")
        _classic(client)
        _consumer(client)
        _share(client)


def _is_found(client: RawClient, group_id: str) -> bool:
    (found,) = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 4).coordinators
    return bool(found.error_code == 0)


def _classic(client: RawClient) -> None:
    join = JoinGroupRequest("classic", 10_000, 10_000, "", None, "custom", [JoinGroupRequestProtocol("p", b"")])
    joined = eventually(lambda: _unless_failed(client.call(join, 3)), "it has joined")
    assigned = [SyncGroupRequestAssignment(joined.member_id, b"all")]
    synced = client.call(SyncGroupRequest("classic", joined.generation_id, joined.member_id, assignments=assigned), 2)
    assert synced.error_code == 0
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=0) for index in (0, 1)]
    for group_id in ("simple", "other"):
        commit = OffsetCommitRequest(group_id, topics=[OffsetCommitRequestTopic("t", partitions=partitions)])
        (topic,) = client.call(commit, 8).topics
        assert not any(it.error_code for it in topic.partitions)
    delete = OffsetDeleteRequest("other", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(1)])])
    assert client.call(delete, 0).error_code == 0


def _consumer(client: RawClient) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="consumer", member_id=MEMBER, member_epoch=0, rebalance_timeout_ms=10_000
    )
    request.subscribed_topic_names, request.topic_partitions = ["t"], []
    assert client.call(request, 1).error_code == 0


def _share(client: RawClient) -> None:
    topic_id = client.call(MetadataRequest([MetadataRequestTopic(name="t")]), 12).topics[0].topic_id
    epoch = 0

    def is_assigned() -> bool:
        nonlocal epoch
        request = ShareGroupHeartbeatRequest(group_id="share", member_id=MEMBER, member_epoch=epoch)
        request.subscribed_topic_names = ["t"] if epoch == 0 else None
        response = client.call(request, 1)
        assert response.error_code == 0, response
        epoch = response.member_epoch
        return bool(response.assignment and response.assignment.topic_partitions)

    eventually(is_assigned, "it has partitions", pause_s=0.2)
    member = ShareRequests(name=MEMBER, topic_id=topic_id, group_id="share")

    def fetched() -> bool:
        answer = client.call(member.fetch_request(max_wait_ms=100), member.version)
        member.epoch += 1
        return bool(answer.responses and acquired(answer))

    assert not fetched()
    client.call(produce(*(b"%d" % number for number in range(5))), 9)
    eventually(fetched, "the records")
    answer = client.call(member.acknowledge_request((0, 2, ACCEPT), (3, 3, RELEASE)), member.version)
    assert answer.responses[0].partitions[0].error_code == 0


def _unless_failed(response: Any) -> Any:
    return None if response.error_code else response


def jmx(port: int) -> Found:
    """All values of Apache Kafka that a metric of kwire has the place of."""
    beans = sorted({it.kafka.partition(" ")[0] for it in METRICS if it.kafka})
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    options = [argument for bean in beans for argument in ("--object-name", bean)]
    done = run_tool(
        "org.apache.kafka.tools.JmxTool", "--jmx-url", url, "--one-time", "--report-format", "properties", *options
    )
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"^(kafka\.[^:]+:.+):([A-Za-z-]+)=([-\d.E]+)$", done.stdout, re.MULTILINE)
    return {(bean, attribute): float(value) for bean, attribute, value in lines}


def of(metric: Metric, found: Found) -> list[float]:
    """Apache Kafka's values of the metric, of each of its labels."""
    bean, _, attribute = metric.kafka.partition(" ")
    pattern = re.compile(re.escape(bean).replace(r"\*", "[^,]+"))
    wanted = (attribute,) if attribute else ("Count", "Value")
    return [value for (name, each), value in found.items() if each in wanted and pattern.fullmatch(name)]


@pytest.mark.soak
def test_names_are_apache_kafkas_and_counts_are_the_same() -> None:
    port = free_port()
    kafka = ApacheKafka(settings=SETTINGS)
    kafka.jvm_options = (
        *kafka.jvm_options,
        *(
            f"-Dcom.sun.management.jmxremote.{option}"
            for option in (f"port={port}", f"rmi.port={port}", "host=127.0.0.1", "authenticate=false", "ssl=false")
        ),
        "-Djava.rmi.server.hostname=127.0.0.1",
    )
    with kafka, Broker(metrics=True, settings=SETTINGS) as broker:
        work(kafka.bootstrap)
        work(broker.address)
        theirs, ours = jmx(port), scrape(broker)
    named = [it for it in METRICS if it.kafka]
    assert [it.kafka for it in named if not of(it, theirs)] == []
    differences = {}
    for metric in named:
        if metric.name.endswith("_total") or metric.name.endswith("numoffsets"):
            found = sum(value for line, value in ours.items() if line.partition("{")[0] == metric.name)
            expected = sum(of(metric, theirs))
            if found != expected and metric.kafka not in BESIDES:
                differences[metric.kafka] = (expected, found)
    assert differences == {}
