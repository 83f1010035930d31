"""ListOffsets over leaders that move, die or serve old versions only."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kwire_protocol.messages.metadata import MetadataRequest

from kwire.client.errors import ConnectionFailed, Refused, UnknownTopic, VersionNotServed
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from testkit.fakes.brokers import FakeBrokers
from testkit.fakes.listed_offsets import response_of


def leaders_answer(brokers: FakeBrokers, *, moved: int | None = None) -> None:
    """Each leader answers 10 * partition, and NOT_LEADER_OR_FOLLOWER for what others lead."""

    def answer(node_id: int, request: Any) -> ListOffsetsResponse:
        leaders = brokers.leaders["t"]
        return response_of(request, lambda index: (0, 10 * index) if leaders[index] == node_id else (6, -1))

    brokers.answers[ListOffsetsRequest] = answer


def test_each_leader_receives_one_request_for_all_of_its_partitions() -> None:
    brokers = FakeBrokers({"t": [1, 2, 1]})
    leaders_answer(brokers)
    with brokers.cluster() as cluster:
        assert list_offsets(cluster, "t", EARLIEST) == {0: 0, 1: 10, 2: 20}
        assert list_offsets(cluster, "t", LATEST, partitions=[2]) == {2: 20}
    requests = brokers.requests(ListOffsetsRequest)
    assert [[it.partition_index for it in request.topics[0].partitions] for request in requests] == [[0, 2], [1], [2]]
    assert [request.topics[0].partitions[0].timestamp for request in requests] == [-2, -2, -1]


def test_only_partitions_that_moved_are_requested_again() -> None:
    brokers = FakeBrokers({"t": [1, 2, 1]})
    leaders_answer(brokers)
    with brokers.cluster() as cluster:
        cluster.topic("t")
        brokers.leaders["t"] = [1, 1, 1]
        assert list_offsets(cluster, "t", LATEST) == {0: 0, 1: 10, 2: 20}
    assert brokers.receivers_of(ListOffsetsRequest) == [1, 2, 1]
    again = brokers.requests(ListOffsetsRequest)[-1]
    assert [it.partition_index for it in again.topics[0].partitions] == [1]
    assert len(brokers.requests(MetadataRequest)) == 2


def test_partitions_of_a_leader_that_died_are_requested_from_the_next_one() -> None:
    brokers = FakeBrokers({"t": [1, 2]})
    leaders_answer(brokers)
    with brokers.cluster() as cluster:
        assert list_offsets(cluster, "t", LATEST) == {0: 0, 1: 10}
        brokers.down = {2}
        with pytest.raises(ConnectionFailed, match="cannot reach node:2"):
            list_offsets(cluster, "t", LATEST)
        assert 25 < brokers.clock.now_s <= 30
        brokers.leaders["t"] = [1, 1]
        assert list_offsets(cluster, "t", LATEST) == {0: 0, 1: 10}


def test_a_partition_without_so_young_a_record_is_left_out() -> None:
    brokers = FakeBrokers({"t": [1, 1]})
    brokers.answers[ListOffsetsRequest] = lambda _, request: response_of(request, lambda index: (0, 5 if index else -1))
    with brokers.cluster() as cluster:
        assert list_offsets(cluster, "t", 1_700_000_000_000) == {1: 5}


def test_an_error_that_does_not_pass_is_reported_though_another_would_pass() -> None:
    brokers = FakeBrokers({"t": [1, 1]})
    brokers.answers[ListOffsetsRequest] = lambda _, request: response_of(
        request, lambda index: (29 if index else 6, -1)
    )
    with brokers.cluster() as cluster:
        with pytest.raises(Refused, match="offsets of t-1 cannot be listed: TOPIC_AUTHORIZATION_FAILED"):
            list_offsets(cluster, "t", LATEST)
        assert brokers.clock.slept_s == []


def test_a_topic_that_went_away_is_unknown() -> None:
    brokers = FakeBrokers({"t": [1]})

    def gone(node_id: int, request: Any) -> ListOffsetsResponse:
        brokers.leaders.clear()
        return response_of(request, lambda index: (3, -1))

    brokers.answers[ListOffsetsRequest] = gone
    with brokers.cluster() as cluster, pytest.raises(UnknownTopic, match="there is no topic 't'"):
        list_offsets(cluster, "t", LATEST)


def test_a_broker_without_isolation_levels_does_not_receive_one() -> None:
    brokers = FakeBrokers({"t": [1]}, newest={ListOffsetsRequest.api_key: 1})
    leaders_answer(brokers)
    with brokers.cluster() as cluster:
        assert list_offsets(cluster, "t", LATEST) == {0: 0}
        with pytest.raises(VersionNotServed):
            list_offsets(cluster, "t", LATEST, isolation_level=IsolationLevel.READ_COMMITTED)
