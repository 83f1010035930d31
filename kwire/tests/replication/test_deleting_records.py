"""DeleteRecords of a partition with followers: what the answer waits for."""

from __future__ import annotations

from collections.abc import Coroutine

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.delete_records import (
    DeleteRecordsResponse,
)
from kwire_protocol.messages.fetch import FetchRequest, FetchResponse

from kwire.handlers import fetch
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.replicas.acknowledging import Acknowledgement
from testkit.worlds.replication.deleting import (
    TIMEOUT_MS,
    Deletion,
    deleted,
    followers_of,
    found,
    leader_of,
    the_answer_waits_until_every_live_replica_has_deleted_the_records,
)
from testkit.worlds.replication.world import NODES, World, over_the_wire


@pytest.fixture
def world() -> World:
    """All three replicas have ten records, and are in sync."""
    world = World()
    world.settle()
    for number in range(10):
        world.produce(leader_of(world), b"%d" % number)
    world.settle()
    assert set(world.registered.isr) == set(NODES)
    return world


def test_the_answer_waits_until_every_live_replica_has_deleted_the_records(world: World) -> None:
    the_answer_waits_until_every_live_replica_has_deleted_the_records(world)


def test_what_all_replicas_have_deleted_already_is_answered_at_once(world: World) -> None:
    Deletion(world, 4)
    world.settle()
    response = deleted(world, 4)
    assert isinstance(response, DeleteRecordsResponse)
    assert found(response) == (0, 4)
    response = deleted(world, 2)
    assert isinstance(response, DeleteRecordsResponse)
    assert found(response) == (0, 4)


def test_the_answer_waits_no_longer_than_the_timeout_of_the_request(world: World) -> None:
    first, second = followers_of(world)
    request = Deletion(world, 4)
    world.fetch(first)
    world.fetch(first)
    assert request.future.timeout_s == TIMEOUT_MS / 1000
    assert isinstance(request.future, Acknowledgement)
    request.future.give_up()
    assert request.answer() == (ErrorCode.REQUEST_TIMED_OUT, 0), "the lowest of all log starts"
    assert world.partition(leader_of(world)).log_start_offset == 4, "the records are gone nevertheless"
    world.fetch(second)
    world.fetch(second)


def test_a_replica_that_is_not_alive_is_not_waited_for(world: World) -> None:
    first, second = followers_of(world)
    request = Deletion(world, 4)
    world.fetch(first)
    world.fetch(first)
    assert not request.is_answered()
    world.kill(second)
    world.hear(leader_of(world))
    assert request.is_answered()
    assert request.answer() == (0, 4)


def test_a_leader_that_leads_no_longer_returns_an_error(world: World) -> None:
    leader, (first, _) = leader_of(world), followers_of(world)
    request = Deletion(world, 4)
    world.elect(leader, first)
    world.hear(leader)
    assert request.answer() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_follower_whose_fetch_waits_hears_at_once_that_there_are_records_to_delete(world: World) -> None:
    leader, (first, _) = leader_of(world), followers_of(world)
    fetcher = world.fetcher(first)
    assert fetcher is not None
    request = fetcher.next_request(world.clock.now_ms())
    assert isinstance(request, FetchRequest)
    request.max_wait_ms = 10_000
    context = Context("node", "127.0.0.1", 9092, api_version=17)
    waiting = bound(fetch.handle, world.brokers[leader])(over_the_wire(request, 17), context)
    assert isinstance(waiting, Coroutine)
    future = waiting.send(None)
    Deletion(world, 4)
    assert future.is_set
    with pytest.raises(StopIteration) as ended:
        waiting.send(None)
    response = ended.value.value
    assert isinstance(response, FetchResponse)
    fetcher.received(over_the_wire(response, 17), world.clock.now_ms())
    assert world.partition(first).log_start_offset == 4
