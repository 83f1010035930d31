"""A listener with SASL, its users, and clients that log in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from kwire.metadata.controller.access.scram_users import credential_record
from kwire.runtime.clock import Clock
from kwire.runtime.tasks import in_this_task
from kwire.security.sasl.client import ClientExchange, client_exchange
from kwire.security.sasl.jaas import MODULES, PLAIN_MODULE, LoginModule
from kwire.security.sasl.scram import SCRAM_MECHANISMS, credential_of_password
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, with_server

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = (
    # Where the machine is slow, time jumps before all that was sent has arrived: nothing but what a test is about may
    # be due then.
    f"kwire.authentication.timeout.ms={(1 << 31) - 1}",
    "connections.max.idle.ms=-1",
    f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
    f'listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN_MODULE} required user_alice="hers" user_bob="his";',
)


async def add_scram_user(kwire: ServerInTrio, name: str, password: str) -> None:
    metadata = kwire.broker.metadata
    records = [
        credential_record(name, mechanism, credential_of_password(mechanism, password, salt=b"salt"))
        for mechanism in SCRAM_MECHANISMS.values()
    ]
    await in_this_task(metadata.change(lambda _: (list(records), None)))


def with_sasl_server(
    scenario: Callable[[ServerInTrio], Awaitable[None]],
    *,
    settings: Iterable[str] = (),
    wall_clock: Clock | None = None,
) -> None:
    """Alice and Bob are users of all mechanisms."""

    async def with_users(kwire: ServerInTrio) -> None:
        await add_scram_user(kwire, "alice", "hers")
        await add_scram_user(kwire, "bob", "his")
        await scenario(kwire)

    with_server(
        with_users, settings=[*SETTINGS, *settings], listen="SASL_PLAINTEXT://127.0.0.1:0", wall_clock=wall_clock
    )


def exchange(mechanism: str = "PLAIN", name: str = "alice", password: str = "hers") -> ClientExchange:
    options = {"username": name, "password": password}
    return client_exchange(mechanism, LoginModule(MODULES[mechanism], "required", options), nonce="nonce")


async def handshake(client: TrioClient, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    response: SaslHandshakeResponse = await client.call(SaslHandshakeRequest(mechanism), version)
    return response


async def say(client: TrioClient, data: bytes, version: int = 2) -> SaslAuthenticateResponse:
    response: SaslAuthenticateResponse = await client.call(SaslAuthenticateRequest(data), version)
    return response


async def login(
    client: TrioClient, mechanism: str = "PLAIN", name: str = "alice", password: str = "hers", *, version: int = 2
) -> SaslAuthenticateResponse:
    """All of it; returns the last answer."""
    answer = await handshake(client, mechanism)
    assert answer.error_code == 0
    machine = exchange(mechanism, name, password)
    data = machine.respond(None)
    while True:
        assert data is not None
        response = await say(client, data, version)
        if response.error_code:
            return response
        data = machine.respond(bytes(response.auth_bytes))
        if data is None:
            return response


async def known_client(kwire: ServerInTrio, **how: Any) -> TrioClient:
    client = await kwire.connect()
    response = await login(client, **how)
    assert response.error_code == 0
    return client
