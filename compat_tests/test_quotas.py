"""Client quotas: their entities, and the throttling of clients that exceed one. Other tests use other client names."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from testkit.basics.waiting import eventually
from testkit.clients.confluent import producing
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.raw.client import RawClient, request_frame
from testkit.servers.brokers import IS_KAFKA, Broker

E = ErrorCode
Pairs = list[tuple[str, str | None]]
EXACT, DEFAULT, ANY = range(3)
KB = bytes(1000)

pytestmark = pytest.mark.asks_one_node


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


def entry(entity: Pairs, *ops: tuple[str, float | None]) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        [AlterClientQuotasRequestEntityData(*it) for it in entity],
        [OpData(key, 0.0 if value is None else value, remove=value is None) for key, value in ops],
    )


def alter(
    client: RawClient, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> list[tuple[dict[str, str | None], ErrorCode]]:
    answer = client.call(AlterClientQuotasRequest(list(entries), validate_only), 1)
    return [
        ({its.entity_type: its.entity_name for its in it.entity}, ErrorCode(it.error_code)) for it in answer.entries
    ]


def described(client: RawClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    answer = client.call(DescribeClientQuotasRequest([ComponentData(*it) for it in components], strict), 1)
    assert answer.error_code == 0, answer
    return {
        tuple(sorted((its.entity_type, its.entity_name or "<default>") for its in it.entity)): {
            value.key: value.value for value in it.values
        }
        for it in answer.entries
    }


def set_quota(client: RawClient, entity: Pairs, key: str, value: float | None) -> None:
    """It is in the metadata of the broker when this returns; clients learn that a moment later in Apache Kafka."""
    assert [code for _, code in alter(client, entry(entity, (key, value)))] == [E.NONE]
    named = tuple(sorted((entity_type, name or "<default>") for entity_type, name in entity))
    eventually(lambda: described(client).get(named, {}).get(key) == value, f"{key} is {value}")
    if IS_KAFKA:
        time.sleep(0.2)


@pytest.fixture
def quota(client: RawClient) -> Iterator[Callable[[Pairs, str, float], None]]:
    """Sets quotas, and removes them at the end."""
    made: list[tuple[Pairs, str]] = []

    def make(entity: Pairs, key: str, value: float) -> None:
        made.append((entity, key))
        set_quota(client, entity, key, value)

    yield make
    for entity, key in made:
        set_quota(client, entity, key, None)


RATE, PERCENTAGE, MUTATIONS = "producer_byte_rate", "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
A_USER: Pairs = [("user", "alice of the quotas")]


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        pytest.param([], [(RATE, 1.0)], id="nobody"),
        pytest.param([("group", "g")], [(RATE, 1.0)], id="type"),
        pytest.param([("", "g")], [(RATE, 1.0)], id="no type"),
        pytest.param([("user", "")], [(RATE, 1.0)], id="no name"),
        pytest.param([("user", "")], [], id="no name, nothing"),
        pytest.param([("client-id", "")], [(RATE, 1.0)], id="no client id"),
        pytest.param([("ip", "")], [(CONNECTIONS, 1.0)], id="no address"),
        pytest.param([("ip", "127.0.0.1"), ("user", "a")], [(CONNECTIONS, 1.0)], id="ip and user"),
        pytest.param([("ip", None), ("client-id", None)], [(CONNECTIONS, 1.0)], id="ip and client id"),
        pytest.param([("ip", "no such host.invalid")], [(CONNECTIONS, 1.0)], id="host"),
        pytest.param(A_USER, [("rate", 1.0)], id="key"),
        pytest.param(A_USER, [(CONNECTIONS, 1.0)], id="key of ips"),
        pytest.param([("ip", None)], [(RATE, 1.0)], id="key of users"),
        pytest.param(A_USER, [(RATE, 0.0)], id="zero"),
        pytest.param(A_USER, [(PERCENTAGE, 0.0)], id="zero percent"),
        pytest.param(A_USER, [(RATE, -1.0)], id="negative"),
        pytest.param(A_USER, [(RATE, 1.5)], id="fraction"),
        pytest.param(A_USER, [(RATE, 1e19)], id="more than a long"),
        pytest.param(A_USER, [(RATE, math.inf)], id="infinite"),
        pytest.param(A_USER, [(RATE, -math.inf)], id="negative infinite"),
        pytest.param([("ip", None)], [(CONNECTIONS, 2.0**31)], id="more than an int"),
        pytest.param(A_USER, [(RATE, 1.0), (RATE, 1.0)], id="key twice"),
        pytest.param(A_USER, [(RATE, 1.0), (RATE, None)], id="set and removed"),
        pytest.param(A_USER, [(PERCENTAGE, 5.0), (RATE, 0.0)], id="one of two"),
    ],
)
def test_invalid_quotas_are_refused_and_others_of_the_request_are_not(
    client: RawClient, entity: Pairs, ops: list[tuple[str, float | None]]
) -> None:
    other: Pairs = [("user", "bob of the quotas")]
    before = described(client)
    answers = alter(client, entry(entity, *ops), entry(other, (RATE, 1.0)), validate_only=True)
    assert sorted(answers, key=str) == sorted([(dict(entity), E.INVALID_REQUEST), (dict(other), E.NONE)], key=str)
    assert described(client) == before
    assert alter(client, entry(entity, *ops)) == [(dict(entity), E.INVALID_REQUEST)]
    assert described(client) == before


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        pytest.param(A_USER, RATE, 2.0**63, id="long"),
        pytest.param(A_USER, RATE, 1.0000001, id="nearly whole"),
        pytest.param(A_USER, RATE, math.nan, id="no number"),
        pytest.param(A_USER, PERCENTAGE, 1e-300, id="tiny"),
        pytest.param(A_USER, MUTATIONS, math.inf, id="infinite"),
        pytest.param([("client-id", "c of the quotas"), *A_USER], "consumer_byte_rate", 5.0, id="pair"),
        pytest.param([("ip", "10.99.99.1")], CONNECTIONS, 2.0**31 - 1, id="ip"),
        pytest.param([("ip", "2001:db8::1")], CONNECTIONS, 1.0, id="ip of version 6"),
    ],
)
def test_unusual_quotas_are_valid(client: RawClient, entity: Pairs, key: str, value: float) -> None:
    named = tuple(sorted(entity))
    try:
        assert alter(client, entry(entity, (key, value))) == [(dict(entity), E.NONE)]
        eventually(lambda: str(described(client).get(named)) == str({key: value}), "it is described")
    finally:
        alter(client, entry(entity, (key, None)))
        eventually(lambda: named not in described(client), "it is removed")


def test_of_an_entity_that_is_named_twice_the_first_counts_and_the_answer_is_an_error(client: RawClient) -> None:
    named = tuple(A_USER)
    try:
        twice = [entry(A_USER, (RATE, value)) for value in (1.0, 2.0)]
        assert alter(client, *twice) == [(dict(A_USER), E.INVALID_REQUEST)]
        eventually(lambda: described(client).get(named) == {RATE: 1.0}, "the first")
        repeated: Pairs = [("user", "somebody else"), *A_USER]
        assert alter(client, entry(repeated, (RATE, 3.0))) == [(dict(A_USER), E.NONE)]
        eventually(lambda: described(client).get(named) == {RATE: 3.0}, "the last name")
    finally:
        alter(client, entry(A_USER, (RATE, None)))


def test_filters_select_entities(client: RawClient, quota: Callable[[Pairs, str, float], None]) -> None:
    u, c = "u of the filters", "c of the filters"
    both: Pairs = [("client-id", c), ("user", u)]
    entities: list[Pairs] = [[("user", u)], [("client-id", c)], both, [("client-id", None), ("user", u)]]
    for entity in entities:
        quota(entity, RATE, 1.0)
    quota([("ip", "10.99.99.2")], CONNECTIONS, 1.0)

    def keys(*components: tuple[str, int, str | None], strict: bool = False) -> set[str]:
        return {str(it) for it in described(client, *components, strict=strict) if "filters" in str(it)}

    user, any_client = ("user", EXACT, u), ("client-id", ANY, None)
    assert len(keys()) == 4
    assert len(keys(user)) == 3
    assert keys(user, strict=True) == {str((("user", u),))}
    assert len(keys(user, any_client)) == len(keys(user, any_client, strict=True)) == 2
    assert keys(user, ("client-id", DEFAULT, None)) == {str((("client-id", "<default>"), ("user", u)))}
    assert keys(("client-id", EXACT, c), strict=True) == {str((("client-id", c),))}
    assert keys(("user", EXACT, "nobody of the filters")) == set()
    assert keys(strict=True) == set()
    assert (("ip", "10.99.99.2"),) in described(client, ("ip", ANY, None))


@pytest.mark.parametrize(
    ("components", "code"),
    [
        pytest.param([("", ANY, None)], E.INVALID_REQUEST, id="no type"),
        pytest.param([("group", ANY, None)], E.UNSUPPORTED_VERSION, id="type"),
        pytest.param([("user", ANY, None), ("user", EXACT, "a")], E.INVALID_REQUEST, id="twice"),
        pytest.param([("user", EXACT, None)], E.INVALID_REQUEST, id="exactly nothing"),
        pytest.param([("user", DEFAULT, "a")], E.INVALID_REQUEST, id="default with name"),
        pytest.param([("user", ANY, "a")], E.INVALID_REQUEST, id="any with name"),
        pytest.param([("user", 3, None)], E.INVALID_REQUEST, id="match type"),
        pytest.param([("ip", ANY, None), ("user", ANY, None)], E.INVALID_REQUEST, id="ip and user"),
    ],
)
def test_filters_that_are_refused(
    client: RawClient, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    answer = client.call(DescribeClientQuotasRequest([ComponentData(*it) for it in components]), 1)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message


@pytest.mark.parametrize(
    ("kinds", "config", "label"),
    [
        pytest.param(("users",), "producer_byte_rate=1024,request_percentage=12.5", "user-principal", id="user"),
        pytest.param(("clients",), "consumer_byte_rate=2048", "client-id", id="client"),
        pytest.param(("users", "clients"), "controller_mutation_rate=7.5", "client-id", id="both"),
        pytest.param(("ips",), "connection_creation_rate=5", "ip", id="ip"),
    ],
)
def test_kafkas_tool_sets_describes_and_removes_quotas(
    broker: Broker, java: JavaHost, unique: Callable[[str], str], kinds: tuple[str, ...], config: str, label: str
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    named: list[str] = []
    for kind in kinds:
        named += ["--entity-type", kind, "--entity-name", "10.99.99.3" if kind == "ips" else unique(kind)]
    java.succeed(tools.CONFIGS, *at, *named, "--alter", "--add-config", config)

    def output() -> str:
        return java.succeed(tools.CONFIGS, *at, *named, "--describe").out

    key, _, value = config.split(",")[0].partition("=")
    shown = eventually(lambda: text if f"{key}={float(value)}" in (text := output()) else "", "it is described")
    assert f"{label} '{named[-1]}'" in shown
    removed = ",".join(it.partition("=")[0] for it in config.split(","))
    java.succeed(tools.CONFIGS, *at, *named, "--alter", "--delete-config", removed)
    eventually(lambda: key not in output(), "it is removed")


def produce(topic: str, size: int, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(0, build_batch([Record(value=bytes(size))]))
    return ProduceRequest(None, acks, 10_000, [TopicProduceData(topic, partition_data=[data])])


def fetch(topic: str, offset: int) -> FetchRequest:
    """Returns a Fetch of one batch with a record of 60,000 bytes."""
    partition = FetchPartition(0, -1, offset, partition_max_bytes=60_100)
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic, partitions=[partition])]
    )


def answered_within_s(client: RawClient) -> float:
    began = time.monotonic()
    client.call(ApiVersionsRequest(), 2)
    return time.monotonic() - began


def test_a_producer_gets_a_throttle_time_and_is_not_read_while_its_neighbour_is(
    broker: Broker, topic: str, quota: Callable[[Pairs, str, float], None], unique: Callable[[str], str]
) -> None:
    name = unique("client")
    quota([("client-id", name)], RATE, 10_000.0)
    with RawClient(broker.bootstrap, client_id=name) as slow, RawClient(broker.bootstrap) as neighbour:
        slow.call(ApiVersionsRequest(), 2)
        assert slow.call(produce(topic, 90_000), 9).throttle_time_ms == 0
        began = time.monotonic()
        answer = slow.call(produce(topic, 20_000), 9)
        throttle_s = answer.throttle_time_ms / 1000
        assert answer.responses[0].partition_responses[0].error_code == E.NONE
        assert throttle_s == pytest.approx(1.0, abs=0.3), "110,000 bytes in ten seconds are 11,000 in one"
        assert time.monotonic() - began < 0.5, "the answer does not wait"
        assert neighbour.call(produce(topic, 200_000), 9).throttle_time_ms == 0
        assert answered_within_s(neighbour) < 0.5
        assert answered_within_s(slow) == pytest.approx(throttle_s, abs=0.5)
        assert answered_within_s(slow) < 0.5


def test_a_consumer_gets_nothing_until_it_may_have_it(
    broker: Broker, topic: str, quota: Callable[[Pairs, str, float], None], unique: Callable[[str], str]
) -> None:
    name = unique("client")
    with RawClient(broker.bootstrap, client_id=name) as slow, RawClient(broker.bootstrap) as neighbour:
        for _ in range(2):
            answer = neighbour.call(produce(topic, 60_000), 9)
            assert answer.responses[0].partition_responses[0].error_code == E.NONE
        quota([("client-id", name)], "consumer_byte_rate", 10_000.0)
        first = slow.call(fetch(topic, 0), 12)
        assert first.throttle_time_ms == 0
        assert 60_000 < len(first.responses[0].partitions[0].records) <= 60_100
        began = time.monotonic()
        answer = slow.call(fetch(topic, 1), 12)
        assert answer.responses == []
        throttle_s = answer.throttle_time_ms / 1000
        assert throttle_s == pytest.approx(2.0, abs=0.5), "120,000 bytes in ten seconds"
        assert time.monotonic() - began < 0.5
        assert len(neighbour.call(fetch(topic, 1), 12).responses[0].partitions[0].records) > 60_000
        assert answered_within_s(slow) == pytest.approx(throttle_s, abs=0.5)


def test_who_creates_and_deletes_too_many_partitions_is_refused_in_new_versions_and_pauses_in_old_ones(
    broker: Broker, quota: Callable[[Pairs, str, float], None], unique: Callable[[str], str]
) -> None:
    name = unique("client")
    a, b, c = (unique(it) for it in "abc")
    quota([("client-id", name)], MUTATIONS, 1.0)

    def connected() -> RawClient:
        """Returns a client that does not pause."""
        return RawClient(broker.bootstrap, client_id=name)

    with connected() as first, connected() as second, connected() as third, connected() as fourth:
        answer = first.call(CreateTopicsRequest([CreatableTopic(a, 13, 1), CreatableTopic(b, 1, 1)], 10_000), 6)
        by_name = {it.name: ErrorCode(it.error_code) for it in answer.topics}
        assert by_name == {a: E.NONE, b: E.THROTTLING_QUOTA_EXCEEDED}
        assert answer.throttle_time_ms == pytest.approx(2000, abs=500)
        strict = CreatePartitionsRequest([CreatePartitionsTopic(a, 14, None)], 10_000)
        assert second.call(strict, 3).results[0].error_code == E.THROTTLING_QUOTA_EXCEEDED
        deleted = third.call(DeleteTopicsRequest([DeleteTopicState(a)], timeout_ms=10_000), 6)
        assert deleted.responses[0].error_code == E.THROTTLING_QUOTA_EXCEEDED
        assert deleted.responses[0].name == a
        assert deleted.throttle_time_ms > 0
        answer = fourth.call(CreateTopicsRequest([CreatableTopic(b, 1, 1), CreatableTopic(c, 1, 1)], 10_000), 5)
        assert [it.error_code for it in answer.topics] == [E.NONE, E.NONE]
        assert answer.throttle_time_ms == pytest.approx(4000, abs=1500)
        began = time.monotonic()
        throttle_s = answer.throttle_time_ms / 1000
        fourth.call(ApiVersionsRequest(), 2)
        assert time.monotonic() - began == pytest.approx(throttle_s, abs=0.5)


def test_an_address_that_connects_too_often_is_not_served_and_others_are(
    broker: Broker, quota: Callable[[Pairs, str, float], None]
) -> None:
    quota([("ip", "127.0.0.9")], CONNECTIONS, 1.0)
    host, _, port = broker.bootstrap.rpartition(":")

    def is_served() -> bool:
        with socket.create_connection((host, int(port)), 10, ("127.0.0.9", 0)) as sock:
            try:
                sock.sendall(request_frame(ApiVersionsRequest(), 0))
                return bool(sock.recv(4))
            except (ConnectionResetError, BrokenPipeError):
                return False

    served = [is_served() for _ in range(10)]
    assert served == [True] * 10
    began = time.monotonic()
    assert not is_served()
    assert time.monotonic() - began == pytest.approx(1.0, abs=0.6), "it is closed after a pause"
    with RawClient(broker.bootstrap) as other:
        assert answered_within_s(other) < 0.5


@pytest.mark.soak
def test_a_producer_with_a_quota_gets_it_and_its_neighbour_is_not_slowed(
    broker: Broker,
    new_topic: Callable[..., str],
    quota: Callable[[Pairs, str, float], None],
    unique: Callable[[str], str],
) -> None:
    """In three windows: what a window has is taken in its first second, and again when that is forgotten."""
    name, neighbour = unique("client"), unique("neighbour")
    rate = 1_000_000.0
    quota([("client-id", name)], RATE, rate)
    delivered, in_time = {name: 0, neighbour: 0}, {name: 0, neighbour: 0}

    def run(client_id: str, topic: str) -> None:
        def count(error: object, message: Any) -> None:
            if error is None:  # what is left at the end is purged
                delivered[client_id] += len(message.value())

        settings = {"client.id": client_id, "batch.size": 100_000, "queue.buffering.max.messages": 100}
        with producing(broker.bootstrap, **settings) as producer:
            producer.list_topics(topic, timeout=10)
            end = time.monotonic() + 33
            while time.monotonic() < end:
                try:
                    producer.produce(topic, bytes(10_000), on_delivery=count)
                except BufferError:
                    producer.poll(0.01)
            in_time[client_id] = delivered[client_id]
            producer.purge()

    threads = [threading.Thread(target=run, args=(it, new_topic())) for it in delivered]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert in_time[name] == pytest.approx(33 * rate, rel=0.1)
    assert in_time[neighbour] > 66 * rate
