"""Requests to other brokers: one connection for each, opened, kept and closed at the right times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio
from kwire_protocol.internal.metadata_brokers import (
    BrokerEndpoint,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from kwire_protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kwire_storage.disk.memory_disk import MemoryDisk
from outcome import Outcome
from trio.testing import wait_all_tasks_blocked

from kwire.client.errors import ClientError, ConnectionFailed, NotABroker, VersionNotServed
from kwire.client.transport import Address
from kwire.config.server import load_config
from kwire.metadata.image import Changes, MetadataImage
from kwire.node.broker import Broker
from kwire.peers.connecting import connect, over_streams
from kwire.peers.peers import MAX_IN_FLIGHT, PAUSES_S, Peers, TooManyRequests, endpoint_of
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import Future
from kwire.runtime.loop import Host, Loop
from testkit.fakes.async_scene import AsyncScene, takes, with_brokers
from testkit.fakes.brokers import HOST, FakeBrokers

IDLE_S = 60.0
TIMEOUT_S = 5.0


@attrs.define(eq=False)
class Scene:
    """Fake brokers and the `peers` that send to them; a broker's address is its host and its number."""

    peers: Peers
    brokers: FakeBrokers
    connections: AsyncScene
    addresses: dict[int, Address]

    def request(self, node_id: int = 1, *, timeout_s: float = TIMEOUT_S) -> Future[Outcome[Any]]:
        return self.peers.send(node_id, MetadataRequest(), timeout_s=timeout_s)

    async def answer(self, node_id: int = 1, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Returns the answer, or raises the error that came instead."""
        future = self.request(node_id, timeout_s=timeout_s)
        return (await value(future)).unwrap()

    async def error(self, node_id: int = 1, *, timeout_s: float = TIMEOUT_S) -> ClientError:
        with pytest.raises(ClientError) as failed:
            await self.answer(node_id, timeout_s=timeout_s)
        return failed.value

    async def assert_hung_up(self) -> None:
        """Checks that the first connection is closed, on which the broker closes its side."""
        await wait_all_tasks_blocked()
        with pytest.raises(trio.ClosedResourceError):
            await self.connections.peers[0].send_all(b".")

    def move(self, node_id: int, address: Address | None) -> None:
        if address is None:
            del self.addresses[node_id]
        else:
            self.addresses[node_id] = address
        self.peers.follow(Changes(brokers=True))


async def value(future: Future[Outcome[Any]]) -> Outcome[Any]:
    if not future.is_set:
        done = trio.Event()
        future.when_set(done.set)
        await done.wait()
    return future.value


def _no_turns(callback: Callable[[], object]) -> None:
    raise AssertionError("peers need tasks only")


def run(scenario: Callable[[Scene], Awaitable[None]], *, max_idle_ms: int = int(IDLE_S * 1000)) -> None:
    brokers = FakeBrokers()

    async def beside(connections: AsyncScene) -> None:
        addresses: dict[int, Address] = {1: (HOST, 1), 2: (HOST, 2)}
        host = Host(_no_turns, connections.nursery.start_soon)
        peers = Peers(addresses.get, Loop(host), lambda: max_idle_ms, "broker-0-to-others", connect=connections.connect)
        await scenario(Scene(peers, brokers, connections, addresses))

    with_brokers(brokers, beside)


def test_requests_to_a_broker_share_one_connection_and_each_gets_its_own_response() -> None:
    async def scenario(scene: Scene) -> None:
        futures = [scene.request(node_id) for node_id in (1, 2, 1, 1)]
        for future in futures:
            assert isinstance((await value(future)).unwrap(), MetadataResponse)
        assert scene.brokers.receivers_of(MetadataRequest).count(1) == 3
        assert sorted(scene.brokers.connected) == [1, 2]

    run(scenario)


def test_a_request_fails_at_once_before_the_server_runs() -> None:
    peers = Peers({1: (HOST, 1)}.get, Loop(), lambda: 0, "broker-0", connect=over_streams(connect))
    future = peers.send(1, MetadataRequest(), timeout_s=1)
    with pytest.raises(ConnectionFailed, match="this broker is not running yet"):
        future.value.unwrap()
    assert peers.pause(1).is_set


def test_a_request_to_a_node_without_an_address_fails() -> None:
    async def scenario(scene: Scene) -> None:
        error = await scene.error(3)
        assert isinstance(error, ConnectionFailed)
        assert "node 3 has no address" in error.message

    run(scenario)


def test_an_idle_connection_is_closed_and_the_next_request_opens_another() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.answer()
        await trio.sleep(IDLE_S - 1)
        await scene.answer()
        await trio.sleep(IDLE_S - 1)
        await scene.answer()
        assert scene.brokers.connected == [1]
        await trio.sleep(IDLE_S + 1)
        await scene.assert_hung_up()
        await scene.answer()
        assert scene.brokers.connected == [1, 1]

    run(scenario)


def test_a_connection_with_a_request_under_way_is_not_idle() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.answer()
        scene.connections.delay = lambda: 3 * IDLE_S
        await scene.answer(timeout_s=4 * IDLE_S)
        assert scene.brokers.connected == [1]

    run(scenario)


def test_no_limit_keeps_a_connection_for_ever() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.answer()
        await trio.sleep(1e6)
        await scene.answer()
        assert scene.brokers.connected == [1]

    run(scenario, max_idle_ms=-1)


def test_a_connection_to_a_former_address_is_closed_and_its_requests_fail() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.answer()
        scene.connections.delay = lambda: 1
        future = scene.request()
        await wait_all_tasks_blocked()
        scene.move(1, (HOST, 2))
        with pytest.raises(ConnectionFailed):
            (await value(future)).unwrap()
        scene.connections.delay = float
        await scene.answer()
        assert scene.brokers.connected == [1, 2]

    run(scenario)


def test_a_broker_that_is_gone_has_its_connection_closed() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.answer()
        scene.move(1, None)
        await scene.assert_hung_up()
        assert "no address" in (await scene.error()).message

    run(scenario)


def test_pauses_grow_while_a_broker_is_down_and_requests_fail_at_once_meanwhile() -> None:
    async def scenario(scene: Scene) -> None:
        scene.brokers.down = {1}
        attempts: list[float] = []
        while trio.current_time() < 10:
            with takes(0):
                error = await scene.error()
            if "Connection refused" in error.message:
                attempts.append(trio.current_time())
            else:
                assert "is tried again in" in error.message
            await trio.sleep(0.01)
        pauses = [later - earlier for earlier, later in pairwise(attempts)]
        assert pauses[:5] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8], abs=0.011)
        assert max(pauses) <= PAUSES_S.longest + 0.011
        await scene.answer(2)

    run(scenario)


def test_a_broker_that_is_back_gets_requests_after_the_pause_and_at_once_if_the_metadata_change() -> None:
    async def scenario(scene: Scene) -> None:
        scene.brokers.down = {1}
        await scene.error()
        scene.brokers.down = set()
        await scene.error()
        scene.peers.follow(Changes(brokers=True))
        await scene.answer()
        scene.brokers.down = {2}
        await scene.error(2)
        scene.brokers.down = set()
        await trio.sleep(0.06)
        await scene.answer(2)

    run(scenario)


def test_after_an_answer_pauses_start_over() -> None:
    async def scenario(scene: Scene) -> None:
        scene.brokers.down = {1}
        for _ in range(5):
            await scene.error()
            await trio.sleep(PAUSES_S.longest)
        scene.brokers.down = set()
        await scene.answer()
        await scene.connections.peers[0].aclose()
        await scene.error()
        await trio.sleep(0.06)
        await scene.answer()

    run(scenario)


def test_a_connection_that_broke_is_replaced_and_nothing_is_sent_twice() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.answer()
        await scene.connections.peers[0].aclose()
        assert isinstance(await scene.error(), ConnectionFailed)
        await trio.sleep(0.06)
        await scene.answer()
        assert scene.brokers.connected == [1, 1]
        assert len(scene.brokers.requests(MetadataRequest)) == 2

    run(scenario)


def test_a_request_that_takes_too_long_fails() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.answer()
        scene.connections.delay = lambda: 100
        with takes(TIMEOUT_S):
            assert "it timed out" in (await scene.error()).message

    run(scenario)


def test_the_time_to_connect_counts() -> None:
    async def scenario(scene: Scene) -> None:
        scene.connections.delay = lambda: 100
        with takes(1):
            futures = [scene.request(timeout_s=1), scene.request(timeout_s=1)]
            for future in futures:
                with pytest.raises(ConnectionFailed, match="within 1 s"):
                    (await value(future)).unwrap()

    run(scenario)


def test_requests_that_are_not_answered_are_bounded_for_each_broker() -> None:
    async def scenario(scene: Scene) -> None:
        futures = [scene.request() for _ in range(MAX_IN_FLIGHT)]
        assert isinstance(await scene.error(), TooManyRequests)
        await scene.answer(2)
        for future in futures:
            (await value(future)).unwrap()
        await scene.answer()

    run(scenario)


def test_what_is_no_broker_or_an_older_one_is_an_error_of_the_request() -> None:
    async def scenario(scene: Scene) -> None:
        scene.brokers.newest = {WriteTxnMarkersRequest.api_key: 1}
        future = scene.peers.send(1, WriteTxnMarkersRequest(), timeout_s=1, at_least=2)
        with pytest.raises(VersionNotServed):
            (await value(future)).unwrap()
        scene.connections.spoils = lambda answer: b"HTTP/1.1 400"
        assert isinstance(await scene.error(2), NotABroker)

    run(scenario)


def test_a_pause_is_over_after_its_time() -> None:
    async def scenario(scene: Scene) -> None:
        done = trio.Event()
        with takes(0.5):
            scene.peers.pause(0.5).when_set(done.set)
            await done.wait()

    run(scenario)


# The address of a broker


def registered(*endpoints: BrokerEndpoint) -> MetadataImage:
    image = MetadataImage()
    image.apply(RegisterBrokerRecord(2, broker_epoch=0, end_points=list(endpoints), fenced=False), offset=0)
    return image


def test_a_broker_is_reached_at_its_inter_broker_listener() -> None:
    image = registered(BrokerEndpoint("PLAINTEXT", "a", 1, 0), BrokerEndpoint("INSIDE", "b", 2, 0))
    default = load_config()
    inside = load_config(
        settings=[
            "listeners=PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
            "inter.broker.listener.name=inside",
        ]
    )
    assert endpoint_of(image, default, 2) == ("a", 1)
    assert endpoint_of(image, inside, 2) == ("b", 2)
    assert endpoint_of(image, default, 3) is None
    assert endpoint_of(registered(), default, 2) is None


def test_a_fenced_broker_has_no_address() -> None:
    image = registered(BrokerEndpoint("PLAINTEXT", "a", 1, 0))
    image.apply(FenceBrokerRecord(2, 0), offset=1)
    assert endpoint_of(image, load_config(), 2) is None
    image.apply(UnfenceBrokerRecord(2, 0), offset=2)
    assert endpoint_of(image, load_config(), 2) == ("a", 1)


def test_a_broker_lists_all_connections_that_it_makes_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that disconnects it must not miss one."""
    made: list[Peers] = []
    follow = Peers.follow

    def followed_by(peers: Peers) -> Callable[[Changes], None]:
        made.append(peers)
        return partial(follow, peers)

    monkeypatch.setattr(Peers, "follow", property(followed_by))
    broker = Broker.open(load_config(), MemoryDisk(), SystemClock())
    assert {*map(id, made)} == {*map(id, broker.all_peers)}
    assert len(made) == len(broker.all_peers)
    broker.close()
