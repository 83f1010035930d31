"""Clients with delegation tokens: a user creates one, and its jobs log in with it until it expires."""

from __future__ import annotations

import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kwire_protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kwire_protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kwire_protocol.messages.metadata import MetadataRequest

from kwire.security.delegation_tokens import password_of
from kwire.security.sasl.scram import SCRAM_MECHANISMS, ScramClient
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, with_server
from testkit.security.sasl_scene import handshake, known_client, say, with_sasl_server

SETTINGS = ("delegation.token.secret.key=a secret of all brokers",)
SHORT_LIFE = ("delegation.token.expiry.time.ms=60000", "delegation.token.expiry.check.interval.ms=10000")
MECHANISM = "SCRAM-SHA-512"


async def new_token(kwire: ServerInTrio) -> CreateDelegationTokenResponse:
    client = await known_client(kwire, mechanism="PLAIN")
    token: CreateDelegationTokenResponse = await client.call(CreateDelegationTokenRequest(), 3)
    assert token.error_code == 0
    return token


async def login_by_token(client: TrioClient, token_id: str, password: str, mechanism: str = MECHANISM) -> int:
    """Returns the error code of the last answer."""
    assert (await handshake(client, mechanism)).error_code == 0
    machine = ScramClient(SCRAM_MECHANISMS[mechanism], token_id, password, "nonce", is_token=True)
    data = machine.respond(None)
    while data is not None:
        response = await say(client, data)
        if response.error_code:
            return response.error_code
        data = machine.respond(bytes(response.auth_bytes))
    return 0


def test_a_job_logs_in_with_its_owners_token_and_gets_no_other_for_it() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        token = await new_token(kwire)
        for mechanism in SCRAM_MECHANISMS:
            job = await kwire.connect()
            assert await login_by_token(job, token.token_id, password_of(token.hmac), mechanism) == 0
            assert (await job.call(MetadataRequest(), 9)).brokers
            refused = await job.call(CreateDelegationTokenRequest(), 3)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert refused.principal_name == "alice"

    with_sasl_server(scenario, settings=SETTINGS)


def test_what_is_no_token_or_none_any_more_logs_nobody_in() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        token = await new_token(kwire)
        client = await kwire.connect()
        assert await login_by_token(client, token.token_id, "wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
        client = await kwire.connect()
        # A user's name and password are no token.
        assert await login_by_token(client, "alice", "hers") == ErrorCode.SASL_AUTHENTICATION_FAILED
        owner = await known_client(kwire, mechanism="SCRAM-SHA-256")
        await owner.call(ExpireDelegationTokenRequest(token.hmac, -1), 2)
        client = await kwire.connect()
        assert (
            await login_by_token(client, token.token_id, password_of(token.hmac))
            == ErrorCode.SASL_AUTHENTICATION_FAILED
        )

    with_sasl_server(scenario, settings=SETTINGS)


def test_a_token_that_expired_is_removed_after_a_while() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await new_token(kwire)
        tokens = kwire.broker.metadata.image.access.delegation_tokens
        # The clock does not wait for the metadata log: when a look begins, the next one may be due already.
        with trio.fail_after(100 * 60):
            while tokens:
                await trio.sleep(10)

    with_sasl_server(scenario, settings=[*SETTINGS, *SHORT_LIFE])


def test_who_is_not_known_has_no_business_with_tokens() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        response = await client.call(DescribeDelegationTokenRequest(None), 3)
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    with_server(scenario, settings=SETTINGS)
