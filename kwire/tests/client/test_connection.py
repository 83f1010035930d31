"""A connection to one broker with several requests on their way."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.conversation import DEFAULT_MAX_IN_FLIGHT
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

from kwire.client.connection import BrokerConnection
from kwire.client.errors import ConnectionFailed, NotABroker, VersionNotServed
from testkit.fakes.brokers import FakeBrokers, in_sequence


def connected(brokers: FakeBrokers, timeout_s: float = 5.0) -> BrokerConnection:
    return BrokerConnection(("node", 1), timeout_s, connect=brokers.connect, clock=brokers.clock)


def generation_as_error(node_id: int, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=request.generation_id)


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers(answers={HeartbeatRequest: generation_as_error})


def test_replies_may_be_received_in_any_order(brokers: FakeBrokers) -> None:
    with connected(brokers) as connection:
        tickets = [connection.send(HeartbeatRequest("g", number)) for number in range(5)]
        assert [connection.receive(tickets[at]).error_code for at in (3, 0, 4, 1, 2)] == [3, 0, 4, 1, 2]
        assert connection.call(HeartbeatRequest("g", 9)).error_code == 9


def test_more_requests_than_may_be_on_their_way_wait_for_replies(brokers: FakeBrokers) -> None:
    count = 2 * DEFAULT_MAX_IN_FLIGHT + 1
    with connected(brokers) as connection:
        tickets = [connection.send(HeartbeatRequest("g", number)) for number in range(count)]
        assert [connection.receive(it).error_code for it in tickets] == list(range(count))


def test_a_request_without_an_answer_is_not_waited_for(brokers: FakeBrokers) -> None:
    brokers.answers[ProduceRequest] = lambda _, request: ProduceResponse() if request.acks else None
    with connected(brokers) as connection:
        assert connection.call(ProduceRequest(acks=0)) is None
        assert connection.call(ProduceRequest(acks=1)) == ProduceResponse()
    assert len(brokers.requests(ProduceRequest)) == 2


def test_large_requests_go_out_in_pieces(brokers: FakeBrokers) -> None:
    batches = [bytes([number]) * 100_000 for number in range(3)]
    data = [PartitionProduceData(number, batch) for number, batch in enumerate(batches)]
    brokers.answers[ProduceRequest] = in_sequence(ProduceResponse())
    with connected(brokers) as connection:
        connection.call(ProduceRequest(acks=1, topic_data=[TopicProduceData("t", partition_data=data)]), at_most=12)
    (request,) = brokers.requests(ProduceRequest)
    assert [bytes(it.records) for it in request.topic_data[0].partition_data] == batches


def test_the_version_is_within_the_requested_range(brokers: FakeBrokers) -> None:
    brokers.newest[HeartbeatRequest.api_key] = 3
    with connected(brokers) as connection:
        connection.call(HeartbeatRequest("g"))
        assert brokers.versions[HeartbeatRequest] == 3
        connection.call(HeartbeatRequest("g"), at_most=1)
        assert brokers.versions[HeartbeatRequest] == 1
        with pytest.raises(VersionNotServed, match="node:1 does not serve Heartbeat 4 to 4"):
            connection.call(HeartbeatRequest("g"), at_least=4)
        assert not connection.is_closed
        assert connection.features == {"transaction.version": 2}


def test_no_answer_in_time_closes_the_connection(brokers: FakeBrokers) -> None:
    brokers.answers[ListGroupsRequest] = in_sequence(None)
    with connected(brokers, timeout_s=5) as connection:
        ticket = connection.send(HeartbeatRequest("g"))
        with pytest.raises(ConnectionFailed, match="did not answer ListGroups: it timed out"):
            connection.call(ListGroupsRequest(), timeout_s=2)
        assert brokers.clock.now_s == 2
        assert connection.is_closed
        assert connection.receive(ticket) == HeartbeatResponse()  # it had come before
        with pytest.raises(ConnectionFailed, match="did not answer ListGroups"):
            connection.call(HeartbeatRequest("g"))


def test_an_answer_that_trickles_in_is_waited_for_no_longer_than_any(brokers: FakeBrokers) -> None:
    with connected(brokers, timeout_s=5) as connection:
        brokers.trickle_s = 1
        with pytest.raises(ConnectionFailed, match="did not answer Heartbeat: it timed out"):
            connection.call(HeartbeatRequest("g"))
        assert brokers.clock.now_s == 5


def test_a_broker_that_hangs_up_is_reported(brokers: FakeBrokers) -> None:
    with connected(brokers) as connection:
        ticket = connection.send(HeartbeatRequest("g"))
        brokers.down = {1}
        with pytest.raises(ConnectionFailed, match="node:1 did not answer Heartbeat: Connection reset by peer"):
            connection.receive(ticket)


def test_a_reply_that_is_none_closes_the_connection(brokers: FakeBrokers) -> None:
    brokers.answers[HeartbeatRequest] = in_sequence(ListGroupsResponse())
    with connected(brokers) as connection:
        for _ in range(2):
            with pytest.raises(NotABroker, match="what answers at node:1 is no Kafka broker in plain text: "):
                connection.call(HeartbeatRequest("g"))
        assert connection.is_closed


def test_a_call_on_a_closed_connection_fails(brokers: FakeBrokers) -> None:
    connection = connected(brokers)
    connection.close()
    with pytest.raises(ConnectionFailed, match="the connection to node:1 is closed"):
        connection.call(HeartbeatRequest("g"))
