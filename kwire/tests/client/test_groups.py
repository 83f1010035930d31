"""Commits without a member: coordinators that load and move, groups with members, unknown topics."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

from kwire.client.cluster import TopicPartition
from kwire.client.errors import Refused, UnknownTopic
from kwire.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from testkit.fakes.brokers import FakeBrokers, in_sequence

T0 = TopicPartition("t", 0)


def taken(code: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic("t", partitions=[OffsetCommitResponsePartition(0, code)])]
    )


def fetched(code: int, *, group_code: int = 0, offset: int = 5) -> OffsetFetchResponse:
    partitions = [OffsetFetchResponsePartitions(0, offset, 3, "m", code), OffsetFetchResponsePartitions(1, -1)]
    topics = [OffsetFetchResponseTopics("t", partitions=partitions)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics, group_code)])


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers({"t": [1]})


def test_a_request_to_a_coordinator_that_loads_or_moves_is_retried(brokers: FakeBrokers) -> None:
    brokers.answers[OffsetCommitRequest] = in_sequence(taken(14), taken(16), taken(15), taken(0))
    with brokers.cluster() as cluster:
        commit_offsets(cluster, "g", {T0: CommittedOffset(7, "m", 2)})
    assert len(brokers.requests(FindCoordinatorRequest)) == 4
    (topic,) = brokers.requests(OffsetCommitRequest)[-1].topics
    (it,) = topic.partitions
    assert (it.committed_offset, it.committed_metadata, it.committed_leader_epoch) == (7, "m", 2)
    assert (brokers.requests(OffsetCommitRequest)[-1].generation_id_or_member_epoch, topic.name) == (-1, "t")


@pytest.mark.parametrize("code", [22, 25, 27])
def test_a_commit_to_a_group_with_members_is_refused_with_the_reason(brokers: FakeBrokers, code: int) -> None:
    brokers.answers[OffsetCommitRequest] = in_sequence(taken(code))
    with (
        brokers.cluster() as cluster,
        pytest.raises(Refused, match="group 'g' does not take the offset of t-0: it has members, and only they may"),
    ):
        commit_offsets(cluster, "g", {T0: 7})


def test_a_topic_that_only_the_coordinator_does_not_know_is_waited_for(brokers: FakeBrokers) -> None:
    brokers.answers[OffsetCommitRequest] = in_sequence(taken(3), taken(0))
    with brokers.cluster() as cluster:
        commit_offsets(cluster, "g", {T0: 7})
        brokers.answers[OffsetCommitRequest] = in_sequence(taken(3))
        brokers.leaders.clear()
        with pytest.raises(UnknownTopic, match="there is no topic 't'"):
            commit_offsets(cluster, "g", {T0: 7})


def test_nothing_to_commit_sends_no_request(brokers: FakeBrokers) -> None:
    with brokers.cluster() as cluster:
        commit_offsets(cluster, "g", {})
    assert brokers.received == []


@pytest.mark.parametrize("not_yet", [fetched(88), fetched(0, group_code=14), fetched(0, group_code=16)])
def test_offsets_that_are_not_available_yet_are_requested_again(brokers: FakeBrokers, not_yet: Any) -> None:
    brokers.answers[OffsetFetchRequest] = in_sequence(not_yet, fetched(0))
    with brokers.cluster() as cluster:
        assert fetch_offsets(cluster, "g", [T0], require_stable=True) == {T0: CommittedOffset(5, "m", 3)}
    first, second = brokers.requests(OffsetFetchRequest)
    assert first == second
    assert first.require_stable
    assert [it.partition_indexes for it in first.groups[0].topics] == [[0]]


def test_all_offsets_of_a_group_are_requested_by_null(brokers: FakeBrokers) -> None:
    brokers.answers[OffsetFetchRequest] = in_sequence(fetched(0))
    with brokers.cluster() as cluster:
        assert fetch_offsets(cluster, "g") == {T0: CommittedOffset(5, "m", 3)}
    assert brokers.requests(OffsetFetchRequest)[0].groups[0].topics is None


def test_offsets_that_may_not_be_fetched_are_refused(brokers: FakeBrokers) -> None:
    brokers.answers[OffsetFetchRequest] = in_sequence(fetched(0, group_code=30))
    with (
        brokers.cluster() as cluster,
        pytest.raises(Refused, match="offsets of group 'g' cannot be fetched: GROUP_AUTHORIZATION_FAILED"),
    ):
        fetch_offsets(cluster, "g")
    brokers.answers[OffsetFetchRequest] = in_sequence(fetched(29))
    with (
        brokers.cluster() as cluster,
        pytest.raises(Refused, match="offset of group 'g' in t-0 cannot be fetched: TOPIC_AUTHORIZATION_FAILED"),
    ):
        fetch_offsets(cluster, "g")
