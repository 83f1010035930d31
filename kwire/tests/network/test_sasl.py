"""Connections of a listener with SASL: exchanges over real sockets, on a clock that jumps."""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Callable

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kwire_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire_protocol.wire import ApiMessage
from trio.testing import MockClock, wait_all_tasks_blocked

from kwire.metadata.image import ConfigResourceType
from kwire.network.authentication import MAX_REQUESTS
from kwire.security.sasl.jaas import PLAIN_MODULE
from testkit.raw.simple_requests import fetch, produce
from testkit.scenes.broker_in_trio import TrioClock
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, with_server
from testkit.security.sasl_scene import (
    MECHANISMS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    add_scram_user,
    exchange,
    handshake,
    known_client,
    login,
    say,
    with_sasl_server,
)

METADATA, PRODUCE = 3, 0
FAILED, ILLEGAL = ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE
UNSUPPORTED = ErrorCode.UNSUPPORTED_SASL_MECHANISM
WRONG = "Authentication failed: Invalid username or password"
ALICE_IN_PLAIN = b"\0alice\0hers"
ASK = MetadataRequest([MetadataRequestTopic(name="t")])


def _wrong_in(mechanism: str) -> str:
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"


async def is_served(client: TrioClient) -> bool:
    response = await client.call(ASK, 9)
    return [it.error_code for it in response.topics] == [0]


# Who comes in


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_user_is_served_after_logging_in(mechanism: str, version: int) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        response = await login(client, mechanism, version=version)
        assert (response.error_code, response.error_message, response.session_lifetime_ms) == (0, "", 0)
        assert await is_served(client)
        (connection,) = kwire.server.connections
        assert str(connection._context.principal) == "User:alice"

    with_sasl_server(scenario)


def test_a_login_that_arrives_in_one_piece_is_served_with_what_follows_it() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        requests: list[tuple[ApiMessage, int]] = [
            (ApiVersionsRequest("kwire", "1"), 3),
            (SaslHandshakeRequest("PLAIN"), 1),
            (SaslAuthenticateRequest(ALICE_IN_PLAIN), 2),
            (ASK, 9),
            (produce(b"x"), 9),
        ]
        await client.send(*requests)
        for request, version in requests:
            _, response = await client.read(request.api_key, version)
            assert getattr(response, "error_code", 0) == 0

    with_sasl_server(scenario)


def test_a_client_requests_versions_first_and_again_in_one_that_is_served() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await client.stream.send_all(struct.pack(">ihhihx", 11, 18, 99, 7, -1))
        frame = await client.read_frame()
        assert struct.unpack_from(">ih", frame) == (7, ErrorCode.UNSUPPORTED_VERSION)
        response = await client.call(ApiVersionsRequest("kwire", "1"), 3)
        assert response.error_code == 0
        assert {17, 36} <= {it.api_key for it in response.api_keys}
        assert (await login(client)).error_code == 0

    with_sasl_server(scenario)


def test_on_a_listener_without_sasl_there_is_nothing_to_authenticate_and_the_connection_stays_open() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        assert (await handshake(client)).error_code == ILLEGAL
        response = await say(client, ALICE_IN_PLAIN)
        message = "SaslAuthenticate request received after successful authentication"
        assert (response.error_code, response.error_message) == (ILLEGAL, message)
        assert await is_served(client)

    with_server(scenario)


def test_a_new_user_can_log_in_at_once_and_a_removed_one_only_stays_connected() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await add_scram_user(kwire, "carol", "new")
        carol = await known_client(kwire, mechanism="SCRAM-SHA-256", name="carol", password="new")
        admin = await known_client(kwire)
        request = AlterUserScramCredentialsRequest([ScramCredentialDeletion("carol", 1)])
        response = await admin.call(request, 0)
        assert [it.error_code for it in response.results] == [0]
        assert await is_served(carol)
        other = await kwire.connect()
        assert (await login(other, "SCRAM-SHA-256", "carol", "new")).error_code == FAILED

    with_sasl_server(scenario)


# Who does not


@pytest.mark.parametrize(
    ("mechanism", "name", "password", "message", "logged"),
    [
        ("PLAIN", "alice", "his", WRONG, "PLAIN failed: a wrong password, user 'alice'"),
        ("PLAIN", "carol", "his", WRONG, "PLAIN failed: no such user, user 'carol'"),
        ("SCRAM-SHA-256", "alice", "his", _wrong_in("SCRAM-SHA-256"), "SCRAM-SHA-256 failed: a wrong password, user"),
        ("SCRAM-SHA-512", "carol", "his", _wrong_in("SCRAM-SHA-512"), "SCRAM-SHA-512 failed: no such user, user"),
    ],
)
def test_a_failure_is_answered_after_the_delay_and_closes_the_connection(
    caplog: pytest.LogCaptureFixture, mechanism: str, name: str, password: str, message: str, logged: str
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        began = trio.current_time()
        response = await login(client, mechanism, name, password)
        assert (response.error_code, response.error_message) == (FAILED, message)
        assert trio.current_time() - began == pytest.approx(5)
        assert await client.is_at_end()

    with_sasl_server(scenario, settings=["connection.failed.authentication.delay.ms=5000"])
    lines = [line for line in caplog.messages if line.startswith("closing the connection from 127.0.0.1")]
    assert len(lines) == 1
    assert f"authentication with {logged}" in lines[0]
    assert password not in lines[0].replace("this", "")


def test_what_arrives_behind_a_failure_is_not_answered() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        wrong = (SaslAuthenticateRequest(b"\0alice\0his"), 2)
        right = (SaslAuthenticateRequest(ALICE_IN_PLAIN), 2)
        await client.send((SaslHandshakeRequest("PLAIN"), 1), wrong, right, (ASK, 9))
        await client.read(SASL_HANDSHAKE, 1)
        assert (await client.read(SASL_AUTHENTICATE, 2))[1].error_code == FAILED
        assert await client.is_at_end()

    with_sasl_server(scenario)


def test_a_failure_without_a_delay_is_answered_at_once() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        began = trio.current_time()
        assert (await login(client, password="his")).error_code == FAILED
        assert trio.current_time() == began
        assert await client.is_at_end()

    with_sasl_server(scenario, settings=["connection.failed.authentication.delay.ms=0"])


def test_a_client_that_hangs_up_during_the_delay_leaves_nothing_behind() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await client.send((SaslHandshakeRequest("PLAIN"), 1), (SaslAuthenticateRequest(b"\0alice\0his"), 2))
        await client.read(SASL_HANDSHAKE, 1)
        await client.hang_up()
        await trio.sleep(6)
        assert kwire.connections == 0

    with_sasl_server(scenario, settings=["connection.failed.authentication.delay.ms=5000"])


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kwire.audit")

    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        response = await handshake(client, "GSSAPI\n")
        assert (response.error_code, tuple(response.mechanisms)) == (UNSUPPORTED, MECHANISMS)
        assert await client.is_at_end()

    with_sasl_server(scenario)
    why = r"the mechanism 'GSSAPI\n' is not enabled, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 are"
    closing = [line for line in caplog.messages if line.startswith("closing the connection from 127.0.0.1")]
    assert [line.endswith(why) for line in closing] == [True]
    audited = r"denied: a login from 127.0.0.1 with 'GSSAPI\n' at SASL_PLAINTEXT: authentication failed: " + why
    assert audited in caplog.messages


async def _two_handshakes(client: TrioClient) -> None:
    assert (await handshake(client)).error_code == 0
    assert (await handshake(client)).error_code == ILLEGAL


async def _metadata(client: TrioClient) -> None:
    await client.send((ASK, 9))


async def _metadata_after_the_handshake(client: TrioClient) -> None:
    assert (await handshake(client)).error_code == 0
    await client.send((ASK, 9))


async def _bytes_before_the_handshake(client: TrioClient) -> None:
    await client.send((SaslAuthenticateRequest(ALICE_IN_PLAIN), 2))


async def _too_many(client: TrioClient) -> None:
    for _ in range(MAX_REQUESTS):  # one that is answered ends the questions about versions
        await client.call(ApiVersionsRequest("", ""), 3)
    await client.send((ApiVersionsRequest("", ""), 3))


async def _too_large(client: TrioClient) -> None:
    await client.stream.send_all(struct.pack(">i", 1001))


async def _too_new(client: TrioClient) -> None:
    await client.stream.send_all(struct.pack(">ihhihx", 11, 36, 3, 7, -1))


async def _no_request(client: TrioClient) -> None:
    await client.stream.send_all(struct.pack(">i", 20) + b"x" * 20)


async def _kerberos(client: TrioClient) -> None:
    await client.stream.send_all(struct.pack(">i", 20) + b"\x60" * 20)


@pytest.mark.parametrize(
    ("breaks_in", "logged"),
    [
        (_two_handshakes, "SaslHandshake during an authentication"),
        (_metadata, "a request of metadata before authentication"),
        (_metadata_after_the_handshake, "a request of metadata before authentication"),
        (_bytes_before_the_handshake, "SaslAuthenticate before SaslHandshake"),
        (_too_many, "more than 16 requests before authentication"),
        (_too_large, "1001"),
        (_too_new, "SaslAuthenticate version 3 is not served"),
        (_no_request, "it is another program, or its security.protocol is not that of this listener"),
        (_kerberos, "a token of GSSAPI (Kerberos), which kwire does not have: use one of PLAIN, SCRAM-SHA-256"),
    ],
)
def test_nothing_else_is_served_before(
    caplog: pytest.LogCaptureFixture, breaks_in: Callable[[TrioClient], Awaitable[None]], logged: str
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client, bystander = await kwire.connect(), await known_client(kwire)
        await breaks_in(client)
        assert await client.is_at_end()
        assert await is_served(bystander)

    with_sasl_server(scenario, settings=["sasl.server.max.receive.size=1000"])
    (line,) = [line for line in caplog.messages if line.startswith("closing the connection from 127.0.0.1")]
    assert logged in line


def test_a_login_is_not_larger_than_any_request_may_be() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        began = trio.current_time()
        await client.stream.send_all(struct.pack(">i", 1001))
        assert await client.is_at_end()
        assert trio.current_time() == began

    with_sasl_server(scenario, settings=["sasl.server.max.receive.size=5000", "socket.request.max.bytes=1000"])


def test_requests_may_be_large_again_once_the_client_is_known() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await known_client(kwire)
        response = await client.call(produce(b"x" * 5000), 9)
        assert response.responses[0].partition_responses[0].error_code == 0

    with_sasl_server(scenario, settings=["sasl.server.max.receive.size=1000"])


async def _silent(client: TrioClient) -> None:
    pass


async def _half_a_frame(client: TrioClient) -> None:
    await client.stream.send_all(b"\0\0\0\x0a\0")


async def _half_way(client: TrioClient) -> None:
    await handshake(client, "SCRAM-SHA-256")
    await say(client, exchange("SCRAM-SHA-256").respond(None) or b"")


@pytest.mark.parametrize("gets_so_far", [_silent, _half_a_frame, _half_way])
def test_whoever_takes_too_long_is_closed(
    caplog: pytest.LogCaptureFixture, gets_so_far: Callable[[TrioClient], Awaitable[None]]
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        bystander = await known_client(kwire)
        began = trio.current_time()
        client = await kwire.connect()
        await gets_so_far(client)
        assert await client.is_at_end()
        assert trio.current_time() - began == pytest.approx(20)
        assert await is_served(bystander)
        await trio.sleep(100)
        assert await is_served(bystander)

    with_sasl_server(scenario, settings=["kwire.authentication.timeout.ms=20000"])
    assert "not authenticated within kwire.authentication.timeout.ms" in caplog.text


@pytest.mark.parametrize("leaves", [TrioClient.hang_up, TrioClient.reset])
@pytest.mark.parametrize("gets_so_far", [_silent, _half_a_frame, _half_way, login])
def test_a_client_that_disconnects_during_a_login_is_not_logged(
    caplog: pytest.LogCaptureFixture,
    gets_so_far: Callable[[TrioClient], Awaitable[object]],
    leaves: Callable[[TrioClient], Awaitable[None]],
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await gets_so_far(client)
        await leaves(client)
        await wait_all_tasks_blocked()
        assert kwire.connections == 0

    with_sasl_server(scenario)
    assert not [line for line in caplog.messages if "closing" in line]


# The handshake before KIP-152


def _frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_after_the_oldest_handshake_the_mechanism_speaks_without_requests(mechanism: str) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        assert (await handshake(client, mechanism, version=0)).error_code == 0
        machine = exchange(mechanism)
        data = machine.respond(None)
        while data is not None:
            await client.stream.send_all(_frame(data))
            data = machine.respond(await client.read_frame())
        assert await is_served(client)

    with_sasl_server(scenario)


def test_a_failure_after_the_oldest_handshake_has_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await handshake(client, version=0)
        await client.stream.send_all(_frame(b"\0alice\0his"))
        assert await client.is_at_end()

    with_sasl_server(scenario)
    assert "authentication with PLAIN failed: a wrong password, user 'alice'" in caplog.text


# Again


REAUTH = "listener.name.sasl_plaintext.plain.connections.max.reauth.ms=10000"


def test_a_client_receives_the_lifetime_of_its_session_and_logs_in_again_between_its_requests() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        assert (await login(client)).session_lifetime_ms == 10_000
        for _ in range(3):
            await trio.sleep(8)
            assert await is_served(client)
            assert (await login(client)).session_lifetime_ms == 10_000
        await client.send((ASK, 9), (fetch(0, max_wait_ms=1), 12), (SaslHandshakeRequest("PLAIN"), 1))
        await client.read(METADATA, 9)
        await client.read(1, 12)
        assert (await client.read(SASL_HANDSHAKE, 1))[1].error_code == ILLEGAL  # within a second of the last one
        assert await is_served(client)

    with_sasl_server(scenario, settings=[REAUTH])


def test_a_login_lasts_as_long_as_is_configured_for_its_mechanism() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        assert (await login(client, "SCRAM-SHA-256")).session_lifetime_ms == 0
        assert (await handshake(client, "SCRAM-SHA-256")).error_code == ILLEGAL
        assert await is_served(client)

    with_sasl_server(scenario, settings=[REAUTH])


@pytest.mark.parametrize("request_", [(ASK, 9), (SaslAuthenticateRequest(ALICE_IN_PLAIN), 2)], ids=["any", "sasl"])
def test_whoever_does_not_log_in_again_in_time_is_closed_at_the_next_request(
    caplog: pytest.LogCaptureFixture, request_: tuple[ApiMessage, int]
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await known_client(kwire)
        await trio.sleep(9.9)
        assert await is_served(client)
        await trio.sleep(0.2)
        assert kwire.connections == 1
        await client.send(request_)
        assert await client.is_at_end()

    with_sasl_server(scenario, settings=[REAUTH])
    assert "it did not authenticate again within connections.max.reauth.ms" in caplog.text


def jump(seconds: float) -> None:
    """Lets so much time pass before anything else happens."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.jump(seconds)


def test_a_request_after_the_end_is_refused_although_the_broker_wakes_up_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await known_client(kwire)
        jump(10.1)
        client.send_now((ASK, 9))  # the broker finds it in the first turn after that
        assert await client.is_at_end()

    with_sasl_server(scenario, settings=[REAUTH])
    assert "it did not authenticate again within connections.max.reauth.ms" in caplog.text


def test_an_authentication_ends_at_its_time_though_quotas_come_and_go() -> None:
    lasts_s = 10_000_000  # the clock jumps while a worker writes the quotas to the metadata log

    async def scenario(kwire: ServerInTrio) -> None:
        client = await known_client(kwire)
        admin = await known_client(kwire, mechanism="SCRAM-SHA-256")
        for removes in (False, True):
            bob = AlterClientQuotasRequestEntityData("user", "bob")
            entry = AlterClientQuotasRequestEntryData([bob], [OpData("producer_byte_rate", 1e6, removes)])
            (result,) = (await admin.call(AlterClientQuotasRequest([entry]), 1)).entries
            assert result.error_code == 0
            assert await is_served(client)
        jump(lasts_s)
        client.send_now((ASK, 9))
        assert await client.is_at_end()
        assert await is_served(admin)

    with_sasl_server(scenario, settings=[REAUTH.replace("10000", str(lasts_s * 1000))])


def test_whoever_is_late_may_still_log_in_again() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await known_client(kwire)
        await trio.sleep(20)
        assert (await login(client)).session_lifetime_ms == 10_000
        assert await is_served(client)

    with_sasl_server(scenario, settings=[REAUTH])


@pytest.mark.parametrize(
    ("mechanism", "name", "password", "message"),
    [
        ("PLAIN", "alice", "his", WRONG),
        ("PLAIN", "bob", "his", "Cannot change principals during re-authentication from User.alice: User.bob"),
        (
            "SCRAM-SHA-256",
            "alice",
            "hers",
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism "
            "'PLAIN'",
        ),
    ],
)
def test_logging_in_again_as_somebody_else_closes_the_connection(
    mechanism: str, name: str, password: str, message: str
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await known_client(kwire)
        response = await login(client, mechanism, name, password)
        assert (response.error_code, response.error_message) == (FAILED, message)
        assert await client.is_at_end()

    with_sasl_server(scenario, settings=[REAUTH])


def test_a_mechanism_that_is_not_enabled_closes_without_a_response_when_a_client_logs_in_again() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await known_client(kwire)
        await client.send((SaslHandshakeRequest("GSSAPI"), 1))
        assert await client.is_at_end()

    with_sasl_server(scenario, settings=[REAUTH])


# Changes at run time


async def _set(client: TrioClient, name: str, value: str) -> tuple[int, str | None]:
    configs = [AlterableConfig(f"listener.name.sasl_plaintext.{name}", 0, value)]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(ConfigResourceType.BROKER, "1", configs)])
    (result,) = (await client.call(request, 1)).responses
    return result.error_code, result.error_message


def test_users_and_mechanisms_change_while_the_broker_runs() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        admin = await known_client(kwire)
        line = f'{PLAIN_MODULE} required user_carol="new";'
        assert await _set(admin, "plain.sasl.jaas.config", line) == (0, None)
        assert (await login(await kwire.connect())).error_code == FAILED
        assert (await login(await kwire.connect(), "PLAIN", "carol", "new")).error_code == 0
        assert await _set(admin, "sasl.enabled.mechanisms", "SCRAM-SHA-512") == (0, None)
        assert (await handshake(await kwire.connect())).mechanisms == ["SCRAM-SHA-512"]
        assert await is_served(admin)

    with_sasl_server(scenario)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("sasl.enabled.mechanisms", "GSSAPI", "has GSSAPI (Kerberos) in sasl.enabled.mechanisms"),
        ("plain.sasl.jaas.config", "user_carol=new", "plain.sasl.jaas.config cannot be read"),
        ("plain.sasl.jaas.config", f"{PLAIN_MODULE} required;", "plain.sasl.jaas.config has no users"),
    ],
)
def test_a_change_that_cannot_be_is_refused(name: str, value: str, why: str) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        admin = await known_client(kwire)
        code, message = await _set(admin, name, value)
        assert code == ErrorCode.INVALID_REQUEST
        assert why in (message or "")
        assert (await login(await kwire.connect())).error_code == 0

    with_sasl_server(scenario)


# Who does not exist


def _challenge_for_unknown_user(*settings: str, started_before: int = 0) -> bytes:
    challenges: list[bytes] = []

    class LaterClock(TrioClock):
        """A clock that has made other random values than a new one."""

        def __init__(self) -> None:
            super().__init__()
            self._ids = started_before

    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await handshake(client, "SCRAM-SHA-256")
        challenges.append(bytes((await say(client, b"n,,n=nobody,r=x")).auth_bytes).partition(b",s=")[2])

    with_sasl_server(scenario, settings=settings, wall_clock=LaterClock())
    return challenges[0]


def test_a_broker_with_a_configured_secret_sends_an_unknown_user_the_same_salt_after_each_start() -> None:
    secret = "kwire.sasl.secret=something random"
    first = _challenge_for_unknown_user(secret)
    assert first == _challenge_for_unknown_user(secret, started_before=1000)
    assert first != _challenge_for_unknown_user("kwire.sasl.secret=something else")
    assert _challenge_for_unknown_user() != _challenge_for_unknown_user(started_before=1000)
