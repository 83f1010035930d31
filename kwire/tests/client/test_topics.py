"""Topics that the client creates: once each, with a wait until they are served."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kwire_protocol.messages.list_offsets import ListOffsetsRequest
from kwire_protocol.messages.metadata import MetadataRequest

from kwire.client.errors import ConnectionFailed, Refused, TopicExists
from kwire.client.topics import NewTopic, create_topics
from testkit.fakes.brokers import FakeBrokers, in_sequence
from testkit.fakes.listed_offsets import response_of


def created(**codes: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name, error_code=code) for name, code in codes.items()])


def test_it_is_done_when_every_leader_answers() -> None:
    brokers = FakeBrokers()

    def metadata(node_id: int, request: Any) -> Any:
        if len(brokers.clock.slept_s) == 1:
            brokers.leaders["t"] = [1]
        return brokers.metadata(request)

    codes = iter([6, 6, 0])
    brokers.answers[MetadataRequest] = metadata
    brokers.answers[CreateTopicsRequest] = in_sequence(created(t=0))
    brokers.answers[ListOffsetsRequest] = lambda _, request: response_of(request, lambda index: (next(codes), 0))
    with brokers.cluster() as cluster:
        create_topics(cluster, [NewTopic("t", configs={"retention.ms": "5"})])
    assert len(brokers.clock.slept_s) == 3
    (topic,) = brokers.requests(CreateTopicsRequest)[0].topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert [(it.name, it.value) for it in topic.configs] == [("retention.ms", "5")]


def test_only_topics_that_were_not_created_are_requested_again() -> None:
    brokers = FakeBrokers({"a": [1], "b": [1]})
    brokers.answers[CreateTopicsRequest] = in_sequence(created(a=0, b=41), created(b=0))
    brokers.answers[ListOffsetsRequest] = lambda _, request: response_of(request, lambda index: (0, 0))
    with brokers.cluster() as cluster:
        create_topics(cluster, [NewTopic("a"), NewTopic("b")])
    assert [[it.name for it in request.topics] for request in brokers.requests(CreateTopicsRequest)] == [
        ["a", "b"],
        ["b"],
    ]


def test_a_topic_that_exists_or_is_refused_is_reported() -> None:
    brokers = FakeBrokers()
    brokers.answers[CreateTopicsRequest] = in_sequence(created(t=36), created(t=40))
    with brokers.cluster() as cluster:
        with pytest.raises(TopicExists, match="topic 't' exists"):
            create_topics(cluster, [NewTopic("t")])
        with pytest.raises(Refused, match="topic 't' cannot be created: INVALID_CONFIG"):
            create_topics(cluster, [NewTopic("t")])
    assert brokers.clock.slept_s == []


def test_a_creation_that_may_have_happened_is_not_requested_twice() -> None:
    brokers = FakeBrokers()
    brokers.answers[CreateTopicsRequest] = in_sequence(ConnectionResetError(104, "Connection reset by peer"))
    with brokers.cluster() as cluster, pytest.raises(ConnectionFailed, match="did not answer CreateTopics"):
        create_topics(cluster, [NewTopic("t")])
    assert len(brokers.requests(CreateTopicsRequest)) == 1
