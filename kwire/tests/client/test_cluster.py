"""The client of a cluster: against kwire itself, and against peers that are no brokers or behave like none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kwire_protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kwire_protocol.wire import NULL_UUID, ApiMessage, Writer

from devtools.ports import free_port
from kwire.client.cluster import Cluster, CoordinatorKind, TopicPartition
from kwire.client.connection import BrokerConnection
from kwire.client.errors import (
    ClientError,
    ConnectionFailed,
    InvalidAddress,
    NoBrokerReached,
    Refused,
    UnknownTopic,
    error_name,
)
from kwire.client.exchange import MAX_REPLY_BYTES
from kwire.client.transport import parse_addresses
from kwire.testing import Broker
from testkit.fakes.brokers import FakeBrokers, in_sequence

TIMEOUT_S = 10.0
NEWEST = 5
"""The version of the first ApiVersions request to a broker."""
FIRST = 1
"""The correlation id of a connection's first request."""


def reply(message: ApiMessage, version: int, correlation_id: int, *, tags: bytes = b"") -> bytes:
    writer = Writer()
    writer.int32(correlation_id)
    body = writer.getvalue() + tags
    writer = Writer()
    message.write(writer, version)
    body += writer.getvalue()
    return len(body).to_bytes(4, "big") + body


@contextmanager
def peer(*answers: bytes, hold: bool = False) -> Iterator[str]:
    """Answers the requests of one connection with these bytes; then closes it, or with `hold` sends nothing more."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            accepted, _ = listener.accept()
            with accepted:
                for answer in answers:
                    accepted.recv(1 << 16)
                    accepted.sendall(answer)
                if hold:
                    done.wait(TIMEOUT_S)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def served(*ranges: tuple[int, int, int]) -> bytes:
    return reply(ApiVersionsResponse(api_keys=[ApiVersion(*it) for it in ranges]), NEWEST, FIRST)


def test_the_metadata_contains_topics_and_brokers() -> None:
    with Broker() as broker, Cluster(broker.address, timeout_s=TIMEOUT_S) as cluster:
        assert cluster.node_ids() == [1]
        created = cluster.call(CreateTopicsRequest([CreatableTopic(name, 2, 1) for name in "ab"], 1000), node_id=1)
        assert [it.error_code for it in created.topics] == [0, 0]
        assert {it.name: len(it.partitions) for it in cluster.metadata(None).topics} == {"a": 2, "b": 2}
        assert [it.name for it in cluster.metadata(["b"]).topics] == ["b"]


def test_requesting_a_topic_does_not_create_it() -> None:
    with Broker() as broker, Cluster(broker.address, timeout_s=TIMEOUT_S) as cluster:
        assert cluster.metadata(["none"]).topics[0].error_code
        assert cluster.metadata(None).topics == []


def test_the_next_address_is_tried() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with Broker() as broker:
        with Cluster(f"{nobody}, {broker.address}", timeout_s=TIMEOUT_S) as cluster:
            assert cluster.node_ids() == [1]
        with pytest.raises(ClientError, match=f"cannot reach {nobody}: Connection refused"):
            Cluster(nobody, timeout_s=TIMEOUT_S)


def test_the_newest_version_that_both_know_is_spoken() -> None:
    brokers = MetadataResponse(brokers=[MetadataResponseBroker(5, "127.0.0.1", 1)])
    answers = served((3, 0, 7), (18, 0, 3)), reply(brokers, 7, FIRST + 1)
    with peer(*answers) as address, Cluster(address, timeout_s=TIMEOUT_S) as cluster:
        assert cluster.node_ids() == [5]
        with pytest.raises(ClientError, match=r"cannot reach 127\.0\.0\.1:1"):
            cluster.call(MetadataRequest(None), node_id=5)


@pytest.mark.parametrize("ranges", [(), ((3, 0, 3),), ((3, 99, 100),)], ids=["not served", "too old", "too new"])
def test_a_broker_that_does_not_serve_what_is_needed_is_reported(ranges: tuple[tuple[int, int, int], ...]) -> None:
    with (
        peer(served(*ranges), hold=True) as address,
        Cluster(address, timeout_s=TIMEOUT_S) as cluster,
        pytest.raises(ClientError, match="does not serve Metadata 4 to 13: it is too old, or too new"),
    ):
        cluster.metadata(None)


def test_a_broker_that_is_not_in_the_cluster_is_reported() -> None:
    with (
        Broker() as broker,
        Cluster(broker.address, timeout_s=TIMEOUT_S) as cluster,
        pytest.raises(ClientError, match=r"broker 9 is none of the cluster's: \[1\]"),
    ):
        cluster.call(MetadataRequest(None), node_id=9)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "no Kafka broker in plain text", id="a web server"),
        pytest.param((MAX_REPLY_BYTES + 1).to_bytes(4, "big"), f"a reply of {MAX_REPLY_BYTES + 1} bytes", id="huge"),
        pytest.param(b"\xff\xff\xff\xff", "a reply of -1 bytes", id="negative"),
        pytest.param(b"\0\0\0\6\0\0\0\1\0\0", "no Kafka broker", id="cut short"),
        pytest.param(reply(ApiVersionsResponse(), NEWEST, 77), "a reply to request 77", id="another request's"),
        pytest.param(b"\0\0\0\x20abc", "closed the connection", id="half a reply"),
        pytest.param(b"", "closed the connection", id="no reply"),
    ],
)
def test_what_is_no_answer_is_reported_in_one_line(answer: bytes, message: str) -> None:
    with peer(answer) as address, pytest.raises(ClientError, match=message) as error:
        Cluster(address, timeout_s=TIMEOUT_S)
    assert address in error.value.message
    assert "\n" not in error.value.message


def test_a_peer_that_sends_nothing_is_not_waited_for_for_ever() -> None:
    with peer(b"", hold=True) as address, pytest.raises(ClientError, match="did not answer ApiVersions: it timed"):
        Cluster(address, timeout_s=0.05)


def test_an_error_of_the_metadata_is_reported() -> None:
    refused = reply(MetadataResponse(error_code=31), 13, FIRST + 1, tags=b"\0")
    with (
        peer(served((3, 0, 13)), refused) as address,
        Cluster(address, timeout_s=TIMEOUT_S) as cluster,
        pytest.raises(ClientError, match="does not return its metadata: CLUSTER_AUTHORIZATION_FAILED"),
    ):
        cluster.metadata(None)


def test_addresses_are_host_and_port() -> None:
    assert parse_addresses("a:1, [::1]:65535") == [("a", 1), ("::1", 65535)]
    for wrong in ("", "a", "a:", ":1", "a:0", "a:65536", "a:x", "a:1,", "a:-1"):
        with pytest.raises(InvalidAddress, match="HOST:PORT"):
            parse_addresses(wrong)


def test_error_codes_have_kafka_s_names() -> None:
    assert (error_name(95), error_name(9999)) == ("INVALID_UPDATE_VERSION", "error 9999")


def test_what_is_known_of_a_topic_is_kept_until_it_is_forgotten() -> None:
    with Broker() as broker, Cluster(broker.address, timeout_s=TIMEOUT_S) as cluster:
        with pytest.raises(UnknownTopic, match="there is no topic 'a'"):
            cluster.topic("a")
        cluster.call(CreateTopicsRequest([CreatableTopic("a", 2, 1)], 1000))
        topic = cluster.topic("a")
        assert topic.leaders == {0: 1, 1: 1}
        assert topic.topic_id != NULL_UUID
        assert cluster.topic("a") is topic
        cluster.forget_topic("a")
        assert cluster.topic("a") == topic
        assert cluster.cluster_id == cluster.metadata([]).cluster_id is not None
        assert cluster.leader(TopicPartition("a", 1)) == 1
        with pytest.raises(UnknownTopic, match="topic 'a' has no partition 2, but 2 of them"):
            cluster.leader(TopicPartition("a", 2))


def test_a_partition_without_a_leader_may_have_one_soon() -> None:
    with FakeBrokers({"t": [-1]}).cluster() as cluster:
        with pytest.raises(Refused, match="t-0 has no leader") as error:
            cluster.leader(TopicPartition("t", 0))
        assert error.value.may_pass


def test_a_broker_that_was_restarted_is_connected_to_again(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        cluster = Cluster(broker.address, timeout_s=TIMEOUT_S)
        cluster.call(MetadataRequest(None), node_id=1)
        port = broker.port
    with Broker(tmp_path, port=port), cluster:
        with pytest.raises(ConnectionFailed, match="did not answer Metadata: it closed the connection"):
            cluster.metadata(None)
        assert cluster.until_done(lambda: cluster.metadata(None)).brokers
        assert cluster.until_done(lambda: cluster.call(MetadataRequest(None), node_id=1)).brokers


def test_a_broker_that_moved_is_found_again() -> None:
    brokers = FakeBrokers({"t": [2]})
    with brokers.cluster() as cluster:
        cluster.metadata(None)
        brokers.down = {2}
        with pytest.raises(ConnectionFailed, match="cannot reach node:2"):
            cluster.connection(2)
        request_count = len(brokers.requests(MetadataRequest))
        brokers.down = set()
        cluster.connection(2)
        assert len(brokers.requests(MetadataRequest)) == request_count + 1


def test_another_broker_returns_the_metadata_when_one_is_gone() -> None:
    brokers = FakeBrokers({"t": [2]})
    with brokers.cluster() as cluster:
        cluster.metadata(None)
        brokers.down = {1}
        cluster.until_done(lambda: cluster.metadata(["t"]))
        assert brokers.receivers_of(MetadataRequest) == [1, 2]
        brokers.down = {1, 2}
        with pytest.raises(NoBrokerReached, match="cannot reach node:1.*; cannot reach node:2"):
            cluster.until_done(lambda: cluster.metadata(["t"]))
        assert sum(brokers.clock.slept_s) <= cluster.timeout_s


def found(error_code: int, node_id: int = 1) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[Coordinator("g", node_id, "node", node_id, error_code)])


def request_metadata(connection: BrokerConnection) -> str:
    connection.call(MetadataRequest(None))
    return connection.name


def test_a_coordinator_that_is_not_available_yet_is_looked_up_again_and_then_kept() -> None:
    brokers = FakeBrokers()
    brokers.answers[FindCoordinatorRequest] = in_sequence(found(15), found(14), found(0, 2))
    with brokers.cluster() as cluster:
        for _ in range(2):
            assert cluster.call_coordinator(CoordinatorKind.GROUP, "g", request_metadata) == "node:2"
    assert brokers.clock.slept_s == [0.02, 0.04]
    assert [it.coordinator_keys for it in brokers.requests(FindCoordinatorRequest)] == [["g"]] * 3


def test_a_coordinator_that_is_none_any_more_is_looked_up_again() -> None:
    brokers = FakeBrokers()
    brokers.answers[FindCoordinatorRequest] = in_sequence(found(0, 1), found(0, 2))

    def call(connection: BrokerConnection) -> str:
        if connection.name == "node:1":
            raise Refused("not here", ErrorCode.NOT_COORDINATOR)
        return connection.name

    with brokers.cluster() as cluster:
        assert cluster.call_coordinator(CoordinatorKind.GROUP, "g", call) == "node:2"


def test_a_request_whose_error_does_not_pass_is_not_sent_again() -> None:
    brokers = FakeBrokers()
    brokers.answers[FindCoordinatorRequest] = in_sequence(found(30))
    with (
        brokers.cluster() as cluster,
        pytest.raises(Refused, match="no coordinator of group 'g': GROUP_AUTHORIZATION_FAILED"),
    ):
        cluster.call_coordinator(CoordinatorKind.GROUP, "g", request_metadata)
    assert brokers.clock.slept_s == []


def test_an_error_that_does_not_pass_in_time_is_reported() -> None:
    brokers = FakeBrokers()
    brokers.answers[FindCoordinatorRequest] = in_sequence(found(15))
    with (
        brokers.cluster(timeout_s=3) as cluster,
        pytest.raises(Refused, match="COORDINATOR_NOT_AVAILABLE"),
    ):
        cluster.call_coordinator(CoordinatorKind.GROUP, "g", request_metadata)
    assert 2 < sum(brokers.clock.slept_s) <= 3
