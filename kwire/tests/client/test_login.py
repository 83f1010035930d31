"""Logins on both kinds of connection: in the order of Kafka's SASL, and again before the session ends."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from kwire.client.async_connection import AsyncBrokerConnection
from kwire.client.cluster import Cluster
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError
from kwire.client.login import MAX_STEPS, LoginFailed
from testkit.fakes.async_scene import AsyncScene, with_brokers
from testkit.fakes.brokers import FakeBrokers


@attrs.define
class Counting:
    """A mechanism that sends 1, 2, ... up to `last`, and expects it echoed each time."""

    last: int = 2
    mechanism: str = "COUNTING"
    sent: int = 0

    def respond(self, challenge: bytes | None) -> bytes | None:
        if challenge is not None and challenge != b"heard %d" % self.sent:
            raise ValueError("the broker does not know the secret")
        if self.sent == self.last:
            return None
        self.sent += 1
        return b"%d" % self.sent


@attrs.define
class Door:
    """A broker's side of logins. `lifetime_ms`: the lifetime of a session."""

    lifetime_ms: int = 0
    mechanisms: tuple[str, ...] = ("COUNTING", "PLAIN")
    refusal: SaslAuthenticateResponse | None = None
    heard: list[bytes] = attrs.field(factory=list)

    def handshake(self, _: int, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        is_known = request.mechanism in self.mechanisms
        code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(code, list(self.mechanisms))

    def authenticate(self, _: int, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        self.heard.append(bytes(request.auth_bytes))
        if self.refusal is not None:
            return self.refusal
        return SaslAuthenticateResponse(auth_bytes=b"heard " + request.auth_bytes, session_lifetime_ms=self.lifetime_ms)

    def brokers(self) -> FakeBrokers:
        return FakeBrokers(
            answers={
                SaslHandshakeRequest: self.handshake,
                SaslAuthenticateRequest: self.authenticate,
                HeartbeatRequest: lambda _, __: HeartbeatResponse(),
            }
        )


def connected(brokers: FakeBrokers, machine: type[Counting] = Counting) -> BrokerConnection:
    return BrokerConnection(("node", 1), 5, connect=brokers.connect, new_exchange=machine, clock=brokers.clock)


def kinds(brokers: FakeBrokers) -> list[type]:
    return [type(request) for _, request in brokers.received]


def test_a_connection_is_introduced_before_its_first_request() -> None:
    door = Door()
    brokers = door.brokers()
    with connected(brokers) as connection:
        connection.call(HeartbeatRequest("g"))
    assert door.heard == [b"1", b"2"]
    assert kinds(brokers) == [
        SaslHandshakeRequest,
        SaslAuthenticateRequest,
        SaslAuthenticateRequest,
        HeartbeatRequest,
    ]
    assert brokers.versions[SaslHandshakeRequest] == 1


def test_a_login_is_repeated_before_it_ends_and_not_earlier() -> None:
    door = Door(lifetime_ms=10_000)
    brokers = door.brokers()
    with connected(brokers) as connection:
        brokers.clock.now_s = 8.4
        connection.call(HeartbeatRequest("g"))
        assert len(door.heard) == 2
        waiting = connection.send(HeartbeatRequest("g"))
        brokers.clock.now_s = 8.5
        connection.call(HeartbeatRequest("g"))
        assert len(door.heard) == 4
        assert connection.receive(waiting) == HeartbeatResponse()


@pytest.mark.parametrize(
    ("door", "reason"),
    [
        (Door(mechanisms=("PLAIN",)), "UNSUPPORTED_SASL_MECHANISM; the mechanisms of this listener are: PLAIN"),
        (
            Door(refusal=SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong password")),
            "cannot log in at node:1 with COUNTING: wrong password",
        ),
        (
            Door(refusal=SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "odd")),
            "COUNTING: ILLEGAL_SASL_STATE \\(odd\\)",
        ),
        (Door(refusal=SaslAuthenticateResponse(auth_bytes=b"?")), "the broker does not know the secret"),
    ],
)
def test_a_refused_login_reports_the_reason_and_closes_the_connection(door: Door, reason: str) -> None:
    with pytest.raises(LoginFailed, match=reason):
        connected(door.brokers())

    async def scenario(scene: AsyncScene) -> None:
        with pytest.raises(LoginFailed, match=reason):
            await opened(scene)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.ClosedResourceError):  # the broker has seen the end, and closed its side
            await scene.peers[0].receive_some()

    with_brokers(door.brokers(), scenario)


def test_a_cluster_tries_no_other_broker_with_what_the_first_one_refused() -> None:
    brokers = Door(mechanisms=()).brokers()
    with pytest.raises(LoginFailed, match="the mechanisms of this listener are: none"):
        Cluster("node:1,node:2", connect=brokers.connect, new_exchange=Counting, clock=brokers.clock)
    assert brokers.connected == [1]


def test_a_broker_that_sends_endless_challenges_is_left() -> None:
    class Endless(Counting):
        def respond(self, challenge: bytes | None) -> bytes | None:
            return b"more"

    door = Door()
    with pytest.raises(LoginFailed, match="another challenge after the last one"):
        connected(door.brokers(), Endless)
    assert len(door.heard) == MAX_STEPS


async def opened(scene: AsyncScene) -> AsyncBrokerConnection:
    return await AsyncBrokerConnection.open(("node", 1), 5, connect=scene.connect, new_exchange=Counting)


def test_tasks_share_one_login_and_its_repetition() -> None:
    door = Door(lifetime_ms=10_000)

    async def scenario(scene: AsyncScene) -> None:
        async with await opened(scene) as connection:
            assert door.heard == [b"1", b"2"]
            await trio.sleep(9)
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(connection.call, HeartbeatRequest("g"))
            assert door.heard == [b"1", b"2"] * 2
            assert kinds(scene.brokers).count(HeartbeatRequest) == 3

    with_brokers(door.brokers(), scenario)


def test_a_task_that_is_refused_later_closes_the_connection() -> None:
    door = Door(lifetime_ms=1000)

    async def scenario(scene: AsyncScene) -> None:
        connection = await opened(scene)
        await trio.sleep(1)
        door.refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "gone")
        failures: list[Any] = []
        for _ in range(2):
            try:
                await connection.call(HeartbeatRequest("g"))
            except ClientError as error:
                failures.append(error)
        assert connection.is_closed
        assert [it.message for it in failures] == ["cannot log in at node:1 with COUNTING: gone"] * 2

    with_brokers(door.brokers(), scenario)
