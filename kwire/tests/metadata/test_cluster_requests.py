"""Metadata, DescribeCluster, DescribeTopicPartitions, InitProducerId: the cluster as clients get it."""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kwire_protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire_protocol.wire import NULL_UUID, Reader, Uuid, Writer

import kwire.metadata.auto_topic_creation
from kwire.handlers import describe_cluster, describe_topic_partitions, init_producer_id, metadata
from kwire.handlers.apis import bound
from kwire.metadata.answers import EncodedResponse
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.service import MetadataService
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import CLUSTER_ID, FakeBroker, context, service

E = ErrorCode
R = TypeVar("R")
NOT_REQUESTED = -(1 << 31)


def as_sent(response: Any, kind: type[R], version: int) -> R:
    """Returns the response as a client of this version reads it."""
    writer = Writer()
    response.write(writer, version)
    read: R = kind.read(Reader(writer.getvalue()), version)  # type: ignore[attr-defined]
    return read


def with_topics(*topics: CreatableTopic, **settings: str) -> MetadataService:
    opened = service({name.replace("_", "."): value for name, value in settings.items()})
    answered(opened.change(create_topics, CreateTopicsRequest(list(topics))))
    return opened


def in_a_cluster(**settings: str) -> MetadataService:
    opened = with_topics(**settings)
    opened.is_alone = False
    return opened


def request_metadata(
    opened: MetadataService | FakeBroker,
    topics: list[str | Uuid] | None,
    *,
    version: int = 13,
    create: bool = False,
    port: int = 9092,
    operations: bool = False,
) -> MetadataResponse:
    requested = [
        MetadataRequestTopic(NULL_UUID, it) if isinstance(it, str) else MetadataRequestTopic(it, None)
        for it in topics or []
    ]
    request = MetadataRequest(None if topics is None else requested, create, operations, operations)
    broker: Any = FakeBroker(opened) if isinstance(opened, MetadataService) else opened
    answer = bound(metadata.handle, broker)(request, context(version, port=port))
    return as_sent(answered(answer) if isinstance(answer, Coroutine) else answer, MetadataResponse, version)


def test_metadata_in_every_version() -> None:
    opened = with_topics(CreatableTopic("t", 2, 1))
    for version in range(14):
        answer = request_metadata(opened, ["t"], version=version, create=True)
        (topic,) = answer.topics
        assert (topic.name, topic.error_code, len(topic.partitions)) == ("t", E.NONE, 2)
        assert [(it.node_id, it.host, it.port) for it in answer.brokers] == [(1, "127.0.0.1", 9092)]
        assert answer.controller_id == (1 if version >= 1 else -1)
        assert answer.cluster_id == (CLUSTER_ID if version >= 2 else None)
        assert topic.partitions[0].leader_epoch == (0 if version >= 7 else -1)
        assert topic.topic_id == (opened.image.topics["t"].topic_id if version >= 10 else NULL_UUID)


def test_no_topics_and_all_topics() -> None:
    opened = with_topics(CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1))
    assert request_metadata(opened, [], version=1).topics == []
    assert [it.name for it in request_metadata(opened, None, version=1).topics] == ["a", "b"]
    assert [it.name for it in request_metadata(opened, [], version=0).topics] == ["a", "b"]


def test_unknown_and_invalid_topics() -> None:
    opened = with_topics()
    answer = request_metadata(opened, ["nope", "a/b", "__consumer_offsets"])
    assert [(it.name, it.error_code, it.is_internal, it.partitions) for it in answer.topics] == [
        ("nope", E.UNKNOWN_TOPIC_OR_PARTITION, False, []),
        ("a/b", E.INVALID_TOPIC_EXCEPTION, False, []),
        ("__consumer_offsets", E.UNKNOWN_TOPIC_OR_PARTITION, True, []),
    ]
    assert opened.image.topics == {}


def test_duplicates_are_answered_once() -> None:
    assert len(request_metadata(with_topics(CreatableTopic("t", 1, 1)), ["t", "t"]).topics) == 1


def test_a_topic_that_cannot_be_created_is_tried_each_time_and_the_reason_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened = with_topics()
    errors = [OSError(errno.ENOSPC, "no room"), OSError(errno.ENOSPC, "no room"), OSError(errno.EIO, "broken")]

    def check_room(partitions: int) -> None:
        if errors:
            raise errors.pop(0)

    opened.check_room = check_room
    broker = FakeBroker(opened)
    for logged in (1, 1, 2, 2):
        assert request_metadata(broker, ["new"], create=True).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert len(caplog.records) == logged
    assert request_metadata(opened, ["new"], create=True).topics[0].error_code == E.NONE
    first, second = caplog.messages
    assert first.startswith("topic new, which a client requested, cannot be created: KAFKA_STORAGE_ERROR")
    assert "no room" in first
    assert "broken" in second


def test_a_factor_that_the_brokers_cannot_meet_is_an_unknown_topic(caplog: pytest.LogCaptureFixture) -> None:
    opened = in_a_cluster(default_replication_factor="2")
    assert request_metadata(opened, ["new"], create=True).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert "INVALID_REPLICATION_FACTOR" in caplog.text


def test_refused_topics_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kwire.metadata.auto_topic_creation, "MOST_REFUSED_TOPICS", 2)
    broker = FakeBroker(in_a_cluster(default_replication_factor="2"))
    request_metadata(broker, ["a", "b", "c"], create=True)
    assert list(broker.auto_topic_creation._refused) == ["b", "c"]


def test_topics_are_not_created_where_that_is_off() -> None:
    opened = with_topics(auto_create_topics_enable="false")
    assert request_metadata(opened, ["new"], create=True).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert opened.image.topics == {}


def test_topics_by_id() -> None:
    opened = with_topics(CreatableTopic("t", 1, 1))
    known = opened.image.topics["t"].topic_id
    answer = request_metadata(opened, [b"x" * 16, known, "ignored beside ids"], version=12)
    assert [(it.name, it.topic_id, it.error_code) for it in answer.topics] == [
        (None, b"x" * 16, E.UNKNOWN_TOPIC_ID),
        ("t", known, E.NONE),
    ]


def test_topics_by_id_are_refused_before_version_12() -> None:
    opened = with_topics(CreatableTopic("t", 1, 1))
    broker: Any = FakeBroker(opened)
    request = MetadataRequest([MetadataRequestTopic(opened.image.topics["t"].topic_id, "t")], False)
    answer = bound(metadata.handle, broker)(request, context(10))
    assert isinstance(answer, MetadataResponse)
    assert [(it.name, it.error_code) for it in answer.topics] == [("t", E.INVALID_REQUEST)]
    assert answer.brokers == []


def test_authorized_operations_are_all_of_them_when_requested() -> None:
    opened = with_topics(CreatableTopic("t", 1, 1))
    answer = request_metadata(opened, ["t"], version=9, operations=True)
    assert (answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations) == (8096, 3576)
    answer = request_metadata(opened, ["t"], version=9)
    assert (answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations) == (
        NOT_REQUESTED,
        NOT_REQUESTED,
    )


def test_clients_get_the_address_that_they_dialled() -> None:
    opened = with_topics()
    assert request_metadata(opened, [], port=1111).brokers[0].port == 1111
    assert request_metadata(opened, [], port=2222).brokers[0].port == 2222


def test_same_question_same_bytes_until_something_changes() -> None:
    opened = with_topics(CreatableTopic("t", 1, 1))
    broker: Any = FakeBroker(opened)

    def answer(version: int = 12) -> EncodedResponse:
        request = MetadataRequest([MetadataRequestTopic(NULL_UUID, "t")], False)
        response = bound(metadata.handle, broker)(request, context(version))
        assert isinstance(response, EncodedResponse)
        return response

    first = answer()
    assert answer() is first
    assert answer(11) is not first
    answered(opened.change(create_topics, CreateTopicsRequest([CreatableTopic("u", 1, 1)])))
    second = answer()
    assert second is not first
    assert second == first
    assert answer() is second


# -- DescribeCluster


@pytest.mark.parametrize("version", [0, 1, 2])
def test_cluster_is_described(version: int) -> None:
    broker: Any = FakeBroker(with_topics())
    request = DescribeClusterRequest(True, 1, include_fenced_brokers=version >= 2)
    for _ in range(2):
        answer = as_sent(
            bound(describe_cluster.handle, broker)(request, context(version)), DescribeClusterResponse, version
        )
        assert (answer.cluster_id, answer.controller_id, answer.error_code) == (CLUSTER_ID, 1, E.NONE)
        assert [(it.broker_id, it.port, it.is_fenced) for it in answer.brokers] == [(1, 9092, False)]
        assert answer.cluster_authorized_operations == 8096


def test_controllers_cannot_be_described_here() -> None:
    broker: Any = FakeBroker(with_topics())
    for endpoint_type, code in ((2, E.MISMATCHED_ENDPOINT_TYPE), (3, E.UNSUPPORTED_ENDPOINT_TYPE)):
        request = DescribeClusterRequest(False, endpoint_type)
        answer = as_sent(bound(describe_cluster.handle, broker)(request, context(1)), DescribeClusterResponse, 1)
        assert answer.error_code == code
        assert answer.brokers == []


# -- DescribeTopicPartitions


def describe(
    opened: MetadataService, topics: list[str], *, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str | None, ErrorCode, list[int]]], tuple[str, int] | None]:
    request = DescribeTopicPartitionsRequest(
        [TopicRequest(name) for name in topics],
        limit,
        None if cursor is None else DescribeTopicPartitionsRequestCursor(*cursor),
    )
    broker: Any = FakeBroker(opened)
    response = bound(describe_topic_partitions.handle, broker)(request, context(0))
    answer = as_sent(response, DescribeTopicPartitionsResponse, 0)
    for topic in answer.topics:
        for partition in topic.partitions:
            assert partition.eligible_leader_replicas == partition.last_known_elr == []
    next_cursor = answer.next_cursor
    return (
        [(it.name, ErrorCode(it.error_code), [p.partition_index for p in it.partitions]) for it in answer.topics],
        None if next_cursor is None else (next_cursor.topic_name, next_cursor.partition_index),
    )


def test_topics_are_described_in_order_unknown_ones_among_them() -> None:
    opened = with_topics(CreatableTopic("foo", 2, 1))
    assert describe(opened, ["nope", "foo", "a/b", "foo"]) == (
        [
            ("a/b", E.INVALID_TOPIC_EXCEPTION, []),
            ("foo", E.NONE, [0, 1]),
            ("nope", E.UNKNOWN_TOPIC_OR_PARTITION, []),
        ],
        None,
    )


def test_paging_visits_every_partition_once() -> None:
    opened = with_topics(*(CreatableTopic(name, count, 1) for name, count in (("a", 3), ("b", 1), ("c", 4))))
    everything = [(name, index) for name, count in (("a", 3), ("b", 1), ("c", 4)) for index in range(count)]
    for limit in range(1, 10):
        seen: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        for _ in range(20):
            topics, cursor = describe(opened, [], limit=limit, cursor=cursor)
            seen += [(name, index) for name, _, indexes in topics for index in indexes]
            if cursor is None:
                break
        assert seen == everything


def test_cursor_is_where_the_next_page_starts() -> None:
    opened = with_topics(CreatableTopic("foo", 2, 1), CreatableTopic("t", 1, 1))
    assert describe(opened, ["foo"], limit=1) == ([("foo", E.NONE, [0])], ("foo", 1))
    assert describe(opened, ["foo"], limit=1, cursor=("foo", 1)) == ([("foo", E.NONE, [1])], None)
    assert describe(opened, ["foo"], cursor=("foo", 2)) == ([("foo", E.NONE, [])], None)
    assert describe(opened, [], limit=2) == ([("foo", E.NONE, [0, 1])], ("t", 0))
    assert describe(opened, [], cursor=("g", 0)) == ([("t", E.NONE, [0])], None)
    assert describe(opened, ["foo"], limit=-1) == ([("foo", E.NONE, [0])], ("foo", 1))


def test_cursor_that_points_nowhere_is_refused() -> None:
    opened = with_topics(CreatableTopic("foo", 2, 1))
    refused: tuple[list[tuple[str | None, ErrorCode, list[int]]], None] = ([("foo", E.INVALID_REQUEST, [])], None)
    assert describe(opened, ["foo"], cursor=("foo", -1)) == refused
    assert describe(opened, ["foo"], cursor=("other", 0)) == refused


def test_brokers_limit_bounds_the_clients() -> None:
    opened = with_topics(CreatableTopic("foo", 5, 1), max_request_partition_size_limit="3")
    assert describe(opened, ["foo"], limit=2000) == ([("foo", E.NONE, [0, 1, 2])], ("foo", 3))


# -- InitProducerId


def init(broker: Any, *fields: Any) -> InitProducerIdResponse:
    return answered(bound(init_producer_id.handle, broker)(InitProducerIdRequest(*fields), context(5)))


def test_idempotent_producers_get_ids_of_their_own() -> None:
    broker = FakeBroker(with_topics())
    assert [init(broker, None, 1000).producer_id for _ in range(1500)] == list(range(1500))
    answer = init(broker, None, 1000, 5, 3)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.NONE, 1500, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (("", 1000), E.INVALID_REQUEST),
        ((None, 1000, -1, 3), E.INVALID_REQUEST),
        ((None, 1000, 5, -1), E.INVALID_REQUEST),
    ],
)
def test_producer_id_refusals(fields: tuple[Any, ...], code: ErrorCode) -> None:
    answer = init(FakeBroker(with_topics()), *fields)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
