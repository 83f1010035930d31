"""The share coordinator (KIP-932) over the requests that brokers send."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kwire_protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from kwire_protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kwire_protocol.messages.write_share_group_state import (
    PartitionData,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from kwire_protocol.wire import NULL_UUID, uuid_to_text

from testkit.basics.waiting import eventually
from testkit.raw import topics
from testkit.raw.client import RawClient, request_frame
from testkit.raw.share_states import SHARE, Batch, SharePartition, find, share_partition, topic_id
from testkit.servers import brokers
from testkit.servers.brokers import Broker

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
TOPIC_RESOURCE, DYNAMIC_TOPIC_CONFIG = 2, 1
INT64_MAX, INT32_MAX = 2**63 - 1, 2**31 - 1


@pytest.fixture
def state(broker: Broker, unique: Callable[[str], str], topic: str) -> Iterator[SharePartition]:
    """A share-partition that is not initialized."""
    with share_partition(broker.bootstrap, unique("group"), topic) as connected:
        yield connected


@pytest.fixture
def begun(state: SharePartition) -> SharePartition:
    assert state.initialize() == E.NONE
    return state


def test_the_versions_are_kafkas(broker: Broker) -> None:
    with RawClient(broker.bootstrap) as client:
        answer = client.call(ApiVersionsRequest("tests", "1.0"), 3)
    served = {it.api_key: (it.min_version, it.max_version) for it in answer.api_keys}
    assert {key: served[key] for key in range(83, 88)} == {83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1)}


# FindCoordinator


def test_a_coordinator_is_found_by_version_6_and_a_key_with_three_parts(broker: Broker, topic: str) -> None:
    with RawClient(broker.bootstrap) as client:
        identity = uuid_to_text(topic_id(client, topic))
        for key in (f"g:{identity}:0", f"a:b::c:{identity}:7", f"g:{identity}:-1"):
            eventually(lambda key=key: find(client, key).error_code == E.NONE, "it has a coordinator")  # type: ignore[misc]
            assert find(client, key).node_id in brokers.NODES
            assert find(client, key, version=5).error_code == E.INVALID_REQUEST
        for key in ("", "g", f"g:{identity}", f"g:{identity}:x", f":{identity}:0", f" :{identity}:0", "g:x:0"):
            found = find(client, key)
            assert (found.error_code, found.node_id, found.host, found.port) == (E.INVALID_REQUEST, -1, "", -1)
        answer = client.call(FindCoordinatorRequest(key_type=SHARE, key=f"g:{identity}:0"), 3)
        assert answer.error_code == E.INVALID_REQUEST


def test_the_topic_of_states_is_configured_as_kafkas(state: SharePartition) -> None:
    resource = DescribeConfigsResource(TOPIC_RESOURCE, "__share_group_state")
    (described,) = state.client.call(DescribeConfigsRequest([resource]), 4).results
    set_here = {it.name: it.value for it in described.configs if it.config_source == DYNAMIC_TOPIC_CONFIG}
    # As many replicas as the tests' broker is configured with.
    assert set_here.pop("min.insync.replicas") in ("1", "2")
    assert set_here == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


# The beginning and the end of a state


def test_a_state_has_to_be_initialized_before_it_is_read_or_written(state: SharePartition) -> None:
    assert state.read().error_code == E.INVALID_REQUEST
    assert state.write() == E.INVALID_REQUEST
    assert state.summary() == (E.NONE, 0, 0, -1, -1)
    assert state.delete() == E.NONE
    assert state.initialize(start_offset=7) == E.NONE
    result = state.read()
    assert (result.error_code, result.state_epoch, result.start_offset, result.state_batches) == (0, 0, 7, [])
    assert state.summary() == (E.NONE, 0, 0, 7, 0)


def test_a_start_offset_may_be_left_to_the_leader(state: SharePartition) -> None:
    assert state.initialize(start_offset=-1) == E.NONE
    assert state.read().start_offset == -1
    assert state.summary() == (E.NONE, 0, 0, -1, -1)
    assert state.write(start_offset=12, complete=0) == E.NONE
    assert state.summary() == (E.NONE, 0, 0, 12, 0)


def test_a_new_state_epoch_resets_the_state_and_fences_the_older_ones(begun: SharePartition) -> None:
    assert begun.write((0, 9, ACKNOWLEDGED, 1)) == E.NONE
    assert begun.read(leader_epoch=6).error_code == E.NONE
    assert begun.initialize(state_epoch=2, start_offset=5) == E.NONE
    assert begun.batches() == []
    assert begun.summary() == (E.NONE, 2, 0, 5, 0)
    assert begun.initialize(state_epoch=1) == E.FENCED_STATE_EPOCH
    assert begun.write(state_epoch=1, leader_epoch=6) == E.FENCED_STATE_EPOCH
    assert begun.write(state_epoch=2, leader_epoch=6, start_offset=5) == E.NONE
    # The leader epoch in the state is another one now, but a leader that was fenced before still is.
    assert begun.read(leader_epoch=5).error_code == E.FENCED_LEADER_EPOCH
    assert begun.write(state_epoch=2, leader_epoch=5) == E.FENCED_LEADER_EPOCH
    assert begun.initialize(state_epoch=2, start_offset=4) == E.NONE  # the same one may
    assert begun.summary() == (E.NONE, 2, 0, 4, 0)


def test_an_epoch_of_minus_1_is_not_checked(begun: SharePartition) -> None:
    assert begun.initialize(state_epoch=3) == E.NONE
    assert begun.read(leader_epoch=4).error_code == E.NONE
    assert begun.write(state_epoch=-1, leader_epoch=-1) == E.NONE
    assert begun.read(leader_epoch=-1).error_code == E.NONE
    assert begun.write(state_epoch=-2, leader_epoch=-1) == E.FENCED_STATE_EPOCH
    assert begun.write(state_epoch=-1, leader_epoch=-2) == E.FENCED_LEADER_EPOCH
    assert begun.read(leader_epoch=-2).error_code == E.FENCED_LEADER_EPOCH
    assert begun.initialize(state_epoch=-1, start_offset=6) == E.NONE
    assert begun.summary() == (E.NONE, -1, 0, 6, 0)
    assert begun.write(state_epoch=2) == E.FENCED_LEADER_EPOCH
    assert begun.write(state_epoch=2, leader_epoch=4) == E.FENCED_STATE_EPOCH
    assert begun.write(state_epoch=9, leader_epoch=9) == E.NONE
    assert begun.write(state_epoch=3, leader_epoch=4) == E.NONE  # a write raises no epoch


def test_a_deleted_state_leaves_no_epoch_behind(begun: SharePartition) -> None:
    assert begun.initialize(state_epoch=5) == E.NONE
    assert begun.read(leader_epoch=5).error_code == E.NONE
    assert begun.delete() == E.NONE
    assert begun.delete() == E.NONE
    assert begun.read().error_code == E.INVALID_REQUEST
    assert begun.summary() == (E.NONE, 0, 0, -1, -1)
    assert begun.initialize(state_epoch=1, start_offset=3) == E.NONE
    assert begun.read(leader_epoch=0).error_code == E.NONE
    assert begun.summary() == (E.NONE, 1, 0, 3, 0)


# Leaders


def test_a_read_records_a_newer_leader_and_fences_the_older_one(begun: SharePartition) -> None:
    assert begun.write((0, 4, AVAILABLE, 1), complete=2) == E.NONE
    result = begun.read(leader_epoch=3)
    assert (result.error_code, len(result.state_batches)) == (E.NONE, 1)
    assert begun.summary() == (E.NONE, 0, 3, 0, 2)
    assert begun.read(leader_epoch=2).error_code == E.FENCED_LEADER_EPOCH
    assert begun.write(leader_epoch=2) == E.FENCED_LEADER_EPOCH
    assert begun.write(leader_epoch=3, complete=2) == E.NONE
    assert begun.write(leader_epoch=8, complete=2) == E.NONE
    assert begun.summary() == (E.NONE, 0, 3, 0, 2)
    assert begun.read(leader_epoch=3).error_code == E.NONE
    assert len(begun.batches()) == 1


# Batches


@pytest.mark.parametrize(
    ("writes", "start_offset", "expected"),
    [
        ([[(0, 9, AVAILABLE, 1)], [(10, 19, AVAILABLE, 1)]], 0, [(0, 19, AVAILABLE, 1)]),
        ([[(0, 9, AVAILABLE, 1)], [(11, 19, AVAILABLE, 1)]], 0, [(0, 9, AVAILABLE, 1), (11, 19, AVAILABLE, 1)]),
        (
            [[(0, 9, AVAILABLE, 1)], [(3, 5, ACKNOWLEDGED, 1)]],
            0,
            [(0, 2, AVAILABLE, 1), (3, 5, ACKNOWLEDGED, 1), (6, 9, AVAILABLE, 1)],
        ),
        ([[(3, 5, ARCHIVED, 1)], [(0, 9, AVAILABLE, 2)]], 0, [(0, 9, AVAILABLE, 2)]),
        (
            [[(3, 5, ARCHIVED, 2)], [(0, 9, AVAILABLE, 1)]],
            0,
            [(0, 2, AVAILABLE, 1), (3, 5, ARCHIVED, 2), (6, 9, AVAILABLE, 1)],
        ),
        (
            [[(0, 9, AVAILABLE, 1), (5, 14, AVAILABLE, 2), (12, 13, ACKNOWLEDGED, 2)]],
            6,
            [(6, 11, AVAILABLE, 2), (12, 13, ACKNOWLEDGED, 2), (14, 14, AVAILABLE, 2)],
        ),
        ([[(0, 9, ACKNOWLEDGED, 1)]], 10, []),
        ([[(0, 9, ACKNOWLEDGED, 1)]], 9, [(9, 9, ACKNOWLEDGED, 1)]),
    ],
)
def test_later_deliveries_count_and_what_is_below_the_start_offset_is_dropped(
    begun: SharePartition, writes: list[list[Batch]], start_offset: int, expected: list[Batch]
) -> None:
    for batches in writes:
        assert begun.write(*batches, start_offset=-1) == E.NONE
    assert begun.write(start_offset=start_offset) == E.NONE
    assert begun.batches() == expected
    assert begun.read().start_offset == start_offset


def test_many_writes_are_read_back_offset_by_offset(begun: SharePartition) -> None:
    draw = random.Random(932)
    expected: dict[int, tuple[int, int]] = {}
    start = 0
    for _ in range(60):
        batches: list[Batch] = []
        for _ in range(draw.randrange(4)):
            first = start + draw.randrange(40)
            batches.append((first, first + draw.randrange(8), draw.choice([0, 2, 4]), draw.randrange(1, 4)))
        start += draw.randrange(3)
        for first, last, delivery_state, count in batches:
            for offset in range(first, last + 1):
                expected[offset] = max(expected.get(offset, (0, 0)), (count, delivery_state))
        expected = {offset: it for offset, it in expected.items() if offset >= start}
        assert begun.write(*batches, start_offset=start) == E.NONE
        found = begun.batches()
        assert found == sorted(found)
        assert {
            offset: (count, delivery_state)
            for first, last, delivery_state, count in found
            for offset in range(first, last + 1)
        } == expected
        assert sum(last - first + 1 for first, last, _, _ in found) == len(expected)


def test_the_number_of_completed_deliveries_comes_with_version_1(begun: SharePartition) -> None:
    assert begun.write(complete=7) == E.NONE
    assert begun.summary() == (E.NONE, 0, 0, 0, 7)
    assert begun.summary(version=0) == (E.NONE, 0, 0, 0, -1)  # as if it was not there
    assert begun.write(version=0) == E.NONE
    assert begun.summary() == (E.NONE, 0, 0, 0, -1)


# What no broker would send


def test_a_start_offset_may_go_back_and_below_zero(begun: SharePartition) -> None:
    assert begun.write((0, 9, AVAILABLE, 1), start_offset=5, complete=-9) == E.NONE
    assert begun.write((-4, -2, AVAILABLE, 1), start_offset=-3, complete=INT32_MAX) == E.NONE
    assert begun.batches() == [(-3, -2, AVAILABLE, 1), (5, 9, AVAILABLE, 1)]
    assert begun.summary() == (E.NONE, 0, 0, -3, INT32_MAX)


def test_states_and_counts_may_be_anything(begun: SharePartition) -> None:
    assert begun.write((1, INT64_MAX, 99, 32_767), (5, INT64_MAX, -1, -5), start_offset=1) == E.NONE
    assert begun.batches() == [(1, INT64_MAX, 99, 32_767)]
    assert begun.write((0, 3, -128, -32_768)) == E.NONE
    assert begun.batches() == [(0, 0, -128, -32_768), (1, INT64_MAX, 99, 32_767)]


def test_a_reversed_batch_is_no_error(begun: SharePartition) -> None:
    # Apache Kafka keeps it, and does not survive two of them.
    assert begun.write((9, 5, AVAILABLE, 1)) == E.NONE
    assert (0, 4, AVAILABLE, 1) not in begun.batches()


def test_a_write_that_is_too_large_for_a_record_changes_nothing(begun: SharePartition) -> None:
    assert begun.write(*((4 * number, 4 * number, AVAILABLE, 1) for number in range(60_000))) == E.UNKNOWN_SERVER_ERROR
    assert begun.batches() == []
    assert begun.write((0, 9, AVAILABLE, 1)) == E.NONE
    assert begun.batches() == [(0, 9, AVAILABLE, 1)]


@pytest.mark.parametrize("method", ["initialize", "read", "write", "delete", "summary"])
def test_partitions_that_are_not_there_are_refused(state: SharePartition, method: str) -> None:
    def error(there: SharePartition) -> E:
        answer = getattr(there, method)()
        return E(answer) if isinstance(answer, int) else E(getattr(answer, "error_code", None) or answer[0])

    # A read or a write fails first because nothing was initialized.
    unknown = E.INVALID_REQUEST if method in ("read", "write") else E.UNKNOWN_TOPIC_OR_PARTITION
    for there, expected in (
        (state.of(partition=99), unknown),
        (state.of(topic_id=NULL_UUID), unknown),
        (state.of(partition=-1), E.INVALID_REQUEST),
    ):
        # Another broker of a cluster may be the one that coordinates it.
        assert error(there) in {expected, E.NOT_COORDINATOR if brokers.IS_CLUSTER else expected}


def test_a_request_without_a_group_or_with_nothing_in_a_topic_is_answered_with_nothing(begun: SharePartition) -> None:
    client, group, identity = begun.client, begun.group, begun.topic_id
    for request in (
        InitializeShareGroupStateRequest(group, []),
        ReadShareGroupStateRequest(group, []),
        WriteShareGroupStateRequest(group, []),
        DeleteShareGroupStateRequest(group, []),
        ReadShareGroupStateSummaryRequest(group, []),
        ReadShareGroupStateRequest(group, [ReadStateData(identity, [])]),
        WriteShareGroupStateRequest("", [WriteStateData(identity, [PartitionData(0)])]),
        WriteShareGroupStateRequest(group, [WriteStateData(identity, [PartitionData(0)]), WriteStateData(identity)]),
    ):
        assert client.call(request, 0).results == []


def test_a_group_that_is_null_ends_the_connection(begun: SharePartition) -> None:
    frame = bytearray(request_frame(WriteShareGroupStateRequest("", []), 1))
    # The length of the group id, one more than it is; no topics; no tags.
    assert frame[-3:] == b"\1\1\0"
    frame[-3] = 0
    begun.client.send(frame)
    assert begun.client.is_closed_by_peer()


def test_several_partitions_are_answered_each_by_itself(
    broker: Broker, unique: Callable[[str], str], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=24)
    with share_partition(broker.bootstrap, unique("group"), topic) as first:
        # In a cluster others have other coordinators.
        second, third = [
            it for index in range(1, 24) for it in [first.of(partition=index)] if it.find() == first.find()
        ][:2]
        for state in (second, third):
            state.wait_until_known()
        assert first.initialize() == E.NONE
        assert third.initialize() == E.NONE
        data = [PartitionData(it.partition, 0, 0, 4, 0) for it in (third, first, second)]
        request = WriteShareGroupStateRequest(first.group, [WriteStateData(first.topic_id, data)])
        (result,) = first.client.call(request, 1).results
        assert {it.partition: it.error_code for it in result.partitions} == {
            first.partition: E.NONE,
            second.partition: E.INVALID_REQUEST,
            third.partition: E.NONE,
        }
        assert [state.summary()[3] for state in (first, second, third)] == [4, -1, 4]


def test_the_state_goes_with_its_topic(begun: SharePartition, broker: Broker, topic: str) -> None:
    assert begun.write((0, 9, ACKNOWLEDGED, 1)) == E.NONE
    topics.delete(broker.bootstrap, topic)
    eventually(lambda: begun.read().error_code == E.INVALID_REQUEST, "its state is gone")
    assert begun.initialize() == E.UNKNOWN_TOPIC_OR_PARTITION
