"""ShareFetch and ShareAcknowledge (KIP-932) as raw requests. The tests initialize states as coordinators do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import NULL_UUID

from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient
from testkit.raw.share_requests import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acked,
    Acquired,
    ShareRequests,
    acquired,
    batches_in,
    partition_of,
)
from testkit.raw.share_states import SharePartition, leader, share_partition
from testkit.servers import brokers
from testkit.servers.brokers import Broker

GROUP_RESOURCE = 32


@attrs.define(eq=False, kw_only=True)
class Member(ShareRequests):
    client: RawClient

    def fetch(self, *partitions: int, **options: Any) -> Any:
        answer = self.client.call(self.fetch_request(partitions, **options), self.version)
        self.epoch += 1
        return answer

    def get(self, **options: Any) -> Acquired:
        answer = self.fetch(**{"max_wait_ms": 2_000, **options})
        assert answer.error_code == E.NONE
        return acquired(answer)

    def acknowledge(self, *batches: Acked, is_renewal: bool = False) -> Any:
        answer = self.client.call(self.acknowledge_request(*batches, is_renewal=is_renewal), self.version)
        self.epoch += 1
        return answer

    def ack(self, *batches: Acked, is_renewal: bool = False) -> int:
        answer = self.acknowledge(*batches, is_renewal=is_renewal)
        assert answer.error_code == E.NONE
        code: int = partition_of(answer).error_code
        return code


@attrs.define(eq=False)
class Sharing:
    leader: str
    topic: str
    state: SharePartition
    clients: list[RawClient] = attrs.field(factory=list)

    def client(self) -> RawClient:
        client = RawClient(self.leader)
        self.clients.append(client)
        return client

    def member(self, name: str = "a", *, version: int = 2) -> Member:
        return Member(
            name=name,
            topic_id=self.state.topic_id,
            group_id=self.state.group,
            version=version,
            client=self.client(),
        )

    def produce(self, *values: bytes, age_s: int = 0) -> None:
        timestamp = int(time.time() - age_s) * 1000
        batch = build_batch([Record(timestamp=timestamp, value=value) for value in values])
        data = TopicProduceData(self.topic, NULL_UUID, [PartitionProduceData(0, batch)])
        (answer,) = self.client().call(ProduceRequest(None, -1, 10_000, [data]), 9).responses[0].partition_responses
        assert answer.error_code == E.NONE

    def configure(self, **values: str) -> None:
        """Alters the group's configurations, and waits until the leader has them."""
        client, wanted = self.client(), {name.replace("_", "."): value for name, value in values.items()}
        configs = [AlterableConfig(name, value) for name, value in wanted.items()]
        request = AlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, self.state.group, configs)])
        (answer,) = client.call(request, 2).responses
        assert answer.error_code == E.NONE, answer.error_message
        describe = DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, self.state.group, [*wanted])])

        def known() -> bool:
            (described,) = client.call(describe, 4).results
            return {it.name: it.value for it in described.configs} == wanted

        eventually(known, f"the leader knows {wanted}")


@pytest.fixture
def unprepared(broker: Broker, unique: Callable[[str], str], topic: str) -> Iterator[Sharing]:
    with share_partition(broker.bootstrap, unique("group"), topic) as state:
        with RawClient(broker.bootstrap) as client:
            sharing = Sharing(leader(client, topic), topic, state)
        yield sharing
        for client in sharing.clients:
            client.close()


@pytest.fixture
def sharing(unprepared: Sharing) -> Sharing:
    """A group that begins at the start of an empty topic."""
    assert unprepared.state.initialize() == E.NONE
    return unprepared


def test_the_versions_are_kafkas(broker: Broker) -> None:
    with RawClient(broker.bootstrap) as client:
        answer = client.call(ApiVersionsRequest("tests", "1.0"), 3)
    served = {it.api_key: (it.min_version, it.max_version) for it in answer.api_keys}
    assert (served[78], served[79]) == ((1, 2), (1, 2))


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_acquired_and_acknowledged(sharing: Sharing, version: int) -> None:
    sharing.produce(b"a", b"b")
    sharing.produce(b"c", b"d")
    member = sharing.member(version=version)
    answer = member.fetch(max_wait_ms=5_000)
    assert answer.error_code == E.NONE
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert acquired(answer) == [(0, 3, 1)]
    assert batches_in(answer) == [(0, 1), (2, 3)]
    answer = member.acknowledge((0, 3, [ACCEPT, RELEASE, REJECT, GAP]))
    assert answer.error_code == partition_of(answer).error_code == E.NONE
    assert answer.acquisition_lock_timeout_ms == (30_000 if version == 2 else 0)
    assert sharing.state.batches() == [(0, 0, 2, 1), (1, 1, 0, 1), (2, 3, 4, 1)]
    assert member.get() == [(1, 1, 2)]


def test_a_record_that_a_member_has_goes_to_no_other_member(sharing: Sharing) -> None:
    sharing.produce(b"a")
    first, second = sharing.member("a"), sharing.member("b")
    assert first.get() == [(0, 0, 1)]
    assert second.get(max_wait_ms=0) == []
    assert second.ack((0, 0, ACCEPT)) == E.INVALID_RECORD_STATE
    assert first.ack((0, 0, ACCEPT)) == E.NONE


@pytest.mark.parametrize("wrong", [(1, 0, [ACCEPT]), (0, 1, [ACCEPT] * 3), (0, 1, []), (0, 1, [9])])
def test_an_acknowledgement_that_contradicts_itself_is_refused(sharing: Sharing, wrong: Acked) -> None:
    sharing.produce(b"a", b"b")
    member = sharing.member()
    assert member.get() == [(0, 1, 1)]
    assert member.ack(wrong) == E.INVALID_REQUEST
    assert member.ack((0, 1, ACCEPT)) == E.NONE


def test_only_batches_with_acquired_records_come(sharing: Sharing) -> None:
    for value in (b"a", b"b", b"c"):
        sharing.produce(value)
    first, second = sharing.member("a"), sharing.member("b")
    assert first.get(batch_size=1) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    assert first.ack((1, 1, RELEASE)) == E.NONE
    answer = second.fetch(max_wait_ms=2_000)
    assert (acquired(answer), batches_in(answer)) == ([(1, 1, 2)], [(1, 1)])


def test_record_limits(sharing: Sharing) -> None:
    sharing.produce(b"a", b"b", b"c")
    sharing.produce(b"d")
    first, second = sharing.member("a"), sharing.member("b")
    assert first.get(max_records=2, mode=1) == [(0, 1, 1)]
    assert second.get(max_records=1) == [(2, 2, 1)]
    assert second.get(max_records=1) == [(3, 3, 1)]


def test_a_batch_that_is_larger_than_all_limits_is_still_returned(sharing: Sharing) -> None:
    sharing.produce(b"x" * 5_000)
    sharing.produce(b"y")
    assert sharing.member().get(max_bytes=1) == [(0, 0, 1)]


def test_a_fetch_waits_for_min_bytes_and_then_takes_what_is_there(sharing: Sharing) -> None:
    member = sharing.member()
    assert member.get() == []
    sharing.produce(b"a")
    before = time.monotonic()
    assert member.get(max_wait_ms=700, min_bytes=10_000) == [(0, 0, 1)]
    assert time.monotonic() - before > 0.6


def test_acknowledgements_come_with_a_fetch(sharing: Sharing) -> None:
    sharing.produce(b"a")
    sharing.produce(b"b")
    member = sharing.member()
    assert member.get(max_records=1) == [(0, 0, 1)]
    answer = member.fetch(acks=[(0, 0, ACCEPT)], max_wait_ms=2_000)
    assert (partition_of(answer).acknowledge_error_code, acquired(answer)) == (E.NONE, [(1, 1, 1)])
    assert sharing.state.batches() == [(0, 0, 2, 1)]
    answer = member.fetch(acks=[(0, 0, ACCEPT), (5, 5, ACCEPT)])
    assert partition_of(answer).acknowledge_error_code in (E.INVALID_REQUEST, E.INVALID_RECORD_STATE)
    answer = member.fetch(acks=[(1, 1, 9)])
    assert partition_of(answer).acknowledge_error_code == E.INVALID_REQUEST


def test_renewals(sharing: Sharing) -> None:
    sharing.produce(b"a")
    member = sharing.member()
    assert member.get() == [(0, 0, 1)]
    assert member.fetch(acks=[(0, 0, RENEW)], is_renewal=True).error_code == E.INVALID_REQUEST
    member.epoch = 1
    answer = member.fetch(acks=[(0, 0, RENEW)], is_renewal=True, max_bytes=0, min_bytes=0, max_records=0)
    assert (answer.error_code, partition_of(answer).acknowledge_error_code) == (E.NONE, E.NONE)
    assert member.ack((0, 0, RENEW), is_renewal=True) == E.NONE
    assert member.ack((0, 0, RENEW)) == E.INVALID_REQUEST
    assert member.ack((0, 0, ACCEPT), is_renewal=True) == E.NONE


def test_a_group_may_forbid_renewals(sharing: Sharing) -> None:
    sharing.configure(share_renew_acknowledge_enable="false")
    sharing.produce(b"a")
    member = sharing.member()
    assert member.get() == [(0, 0, 1)]
    eventually(lambda: member.ack((0, 0, RENEW), is_renewal=True) == E.INVALID_RECORD_STATE, "it is forbidden")
    assert member.ack((0, 0, ACCEPT), is_renewal=True) == E.NONE


def test_sessions_have_epochs(sharing: Sharing) -> None:
    member = sharing.member()
    member.epoch = 3
    assert member.fetch().error_code == E.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge((0, 0, ACCEPT)).error_code == E.SHARE_SESSION_NOT_FOUND
    member.epoch = -1
    assert member.fetch(acks=[(0, 0, ACCEPT)]).error_code == E.SHARE_SESSION_NOT_FOUND
    member.epoch = 0
    assert member.acknowledge((0, 0, ACCEPT)).error_code == E.INVALID_SHARE_SESSION_EPOCH
    member.epoch = 0
    assert member.fetch(acks=[(0, 0, ACCEPT)]).error_code == E.INVALID_REQUEST
    member.epoch = 0
    assert member.fetch().error_code == E.NONE
    member.epoch = 7
    assert member.fetch().error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge((0, 0, ACCEPT)).error_code == E.INVALID_SHARE_SESSION_EPOCH


def test_members_need_ids(sharing: Sharing) -> None:
    for name in ("", "x" * 37):
        member = sharing.member(name)
        assert member.fetch().error_code == E.INVALID_REQUEST
        assert member.acknowledge((0, 0, ACCEPT)).error_code == E.INVALID_REQUEST


def test_errors_of_partitions(sharing: Sharing) -> None:
    member = sharing.member()
    answer = member.fetch(0, 7, max_wait_ms=500)
    assert [partition_of(answer, it).error_code for it in (0, 7)] == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    other = sharing.member("b")
    other.topic_id = b"\x07" * 16
    answer = other.fetch()
    if brokers.IS_KAFKA:
        # Apache Kafka 4.3.1 has a mistake there, and gives up the whole request.
        assert answer.error_code == E.UNKNOWN_SERVER_ERROR
    else:
        assert partition_of(answer).error_code == E.UNKNOWN_TOPIC_ID
    assert other.ack((0, 0, ACCEPT)) == E.UNKNOWN_TOPIC_ID


def test_a_partition_without_state_is_not_fetched(unprepared: Sharing) -> None:
    answer = unprepared.member().fetch(max_wait_ms=5_000)
    assert answer.error_code == E.NONE
    assert partition_of(answer).error_code == E.UNKNOWN_SERVER_ERROR


def test_an_acknowledgement_of_what_was_never_fetched_here(sharing: Sharing) -> None:
    member = sharing.member()
    member.fetch(7)
    assert member.ack((0, 0, ACCEPT)) == E.UNKNOWN_TOPIC_OR_PARTITION


def test_the_last_request_releases_what_is_left(sharing: Sharing) -> None:
    sharing.produce(b"a", b"b")
    first, second = sharing.member("a"), sharing.member("b")
    assert first.get() == [(0, 1, 1)]
    first.epoch = -1
    assert first.ack((0, 0, ACCEPT)) == E.NONE
    first.epoch = 1
    assert first.acknowledge((0, 0, ACCEPT)).error_code == E.SHARE_SESSION_NOT_FOUND
    assert second.get() == [(1, 1, 2)]
    second.epoch = -1
    answer = second.fetch(acks=[(1, 1, RELEASE)])
    assert (answer.error_code, partition_of(answer).acknowledge_error_code) == (E.NONE, E.NONE)
    assert sharing.member("c").get() == [(1, 1, 3)]


def test_a_lost_connection_releases_too(sharing: Sharing) -> None:
    sharing.produce(b"a")
    first, second = sharing.member("a"), sharing.member("b")
    assert first.get() == [(0, 0, 1)]
    first.client.close()
    assert second.get(max_wait_ms=10_000) == [(0, 0, 2)]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", 2), ("by_duration:PT1H", 1)])
def test_a_group_without_an_offset_starts_according_to_share_auto_offset_reset(
    unprepared: Sharing, reset: str, expected: int
) -> None:
    sharing = unprepared
    sharing.configure(share_auto_offset_reset=reset)
    assert sharing.state.initialize(start_offset=-1) == E.NONE
    sharing.produce(b"a", age_s=7_200)
    sharing.produce(b"b", age_s=1_800)
    member = sharing.member()
    before = member.get(max_wait_ms=1_000)
    sharing.produce(b"c")
    assert [*before, *member.get()][0][0] == expected
