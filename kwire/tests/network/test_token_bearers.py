"""Clients that log in by OAUTHBEARER, over sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.metadata import MetadataRequest
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.definition import ConfigError
from kwire.config.oauth import UNSECURED_HANDLER
from kwire.config.server import load_config
from kwire.network.jwks import FILE_CHECK_INTERVAL_MS
from kwire.network.listener_security import securities_of
from kwire.node.broker import Broker
from kwire.runtime.clock import SystemClock
from kwire.security.sasl.oauthbearer import FirstMessage, OAuthBearerClient
from testkit.scenes.broker_in_trio import TrioClock
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, with_server
from testkit.security.oauth.issuer import NOW_MS, NOW_S, claims, jwk, jwks, private_key, token, unsigned
from testkit.security.oauth.key_server import key_server, response
from testkit.security.sasl_scene import handshake, say

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
INVALID = '{"status":"invalid_token"}'
LISTENER = "listener.name.sasl_plaintext.oauthbearer"


LISTEN = "SASL_PLAINTEXT://127.0.0.1:0"


def settings_for(url: str) -> list[str]:
    return ["sasl.enabled.mechanisms=OAUTHBEARER", f"sasl.oauthbearer.jwks.endpoint.url={url}"]


class IssuersClock(TrioClock):
    def now_ms(self) -> int:
        return NOW_MS


def with_oauth_server(
    scenario: Callable[[ServerInTrio], Awaitable[None]], url: str, settings: Iterable[str] = ()
) -> None:
    """Runs it at the time for which tokens of `issuer` are made."""
    with_server(
        scenario,
        settings=[*settings_for(url), *settings],
        listen=LISTEN,
        wall_clock=IssuersClock(),
    )


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys.json"
    file.write_bytes(jwks(jwk("k1")))
    return file


async def login(client: TrioClient, text: str, authzid: str = "") -> SaslAuthenticateResponse:
    """Returns the last answer."""
    assert (await handshake(client, "OAUTHBEARER")).error_code == 0
    machine = OAuthBearerClient(FirstMessage(text, authzid))
    answer = await say(client, machine.respond(None) or b"")
    if answer.error_code == 0 and (last := machine.respond(bytes(answer.auth_bytes))) is not None:
        answer = await say(client, last)
    return answer


async def try_to_login(kwire: ServerInTrio, text: str, authzid: str = "") -> tuple[int, str | None]:
    answer = await login(await kwire.connect(), text, authzid)
    return answer.error_code, answer.error_message


def test_who_has_a_token_is_served_until_it_expires(keys: Path) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        answer = await login(client, token(claims(sub="alice", exp=NOW_S + 600)))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 600_000)
        assert (await client.call(MetadataRequest(), 9)).brokers
        (connection,) = kwire.server.connections
        assert str(connection._context.principal) == "User:alice"

    with_oauth_server(scenario, keys.as_uri())


def test_a_client_without_a_valid_token_gets_an_error_and_the_connection_closes(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        for forged in (unsigned(), token(key=private_key("RSA", 1)), token(claims(exp=NOW_S - 60, iat=NOW_S - 70))):
            client = await kwire.connect()
            answer = await login(client, forged)
            assert (answer.error_code, answer.error_message) == (FAILED, INVALID)
            with pytest.raises((trio.BrokenResourceError, EOFError, AssertionError)):
                await client.call(MetadataRequest(), 9)
        code, message = await try_to_login(kwire, token(), authzid="root")
        assert code == FAILED
        assert message is not None
        assert "root" not in message

    with_oauth_server(scenario, keys.as_uri())
    assert "which is not accepted" in caplog.text
    assert "the signature is not that of the key 'k1'" in caplog.text
    assert "it expired 60 s ago" in caplog.text


def test_a_file_of_keys_that_is_missing_prevents_the_start(tmp_path: Path) -> None:
    url = (tmp_path / "keys.json").as_uri()
    config = load_config(settings=settings_for(url), listen=[LISTEN])
    with (
        closing(Broker.open(config, MemoryDisk(), SystemClock())) as broker,
        pytest.raises(ConfigError, match="listener SASL_PLAINTEXT: file:///.*keys.json cannot be read: No such file"),
    ):
        securities_of(broker)


def test_keys_in_a_file_may_change(keys: Path) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        new = token(kid="new", key=private_key("RSA", 1))
        assert (await try_to_login(kwire, new))[0] == FAILED
        keys.write_bytes(jwks(jwk("k1"), jwk("new", key=private_key("RSA", 1))))
        while (await try_to_login(kwire, new))[0] == FAILED:
            await trio.sleep(FILE_CHECK_INTERVAL_MS / 1000)
        assert (await try_to_login(kwire, token()))[0] == 0

    with_oauth_server(scenario, keys.as_uri())


def test_a_server_of_keys_may_come_later(caplog: pytest.LogCaptureFixture) -> None:
    with key_server(response(b"", "503 Service Unavailable"), response(jwks(jwk("k1")))) as server:

        async def scenario(kwire: ServerInTrio) -> None:
            while (await try_to_login(kwire, token()))[0] == FAILED:
                await trio.sleep(0.1)

        with_oauth_server(scenario, server.url())
    assert "the status 503, not 200; no token is accepted until they can" in caplog.text


def test_what_is_seldom_meant_is_warned_of(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    warnings = {
        "audience": "listener SASL_PLAINTEXT accepts tokens that are for nobody in particular",
        "issuer": "listener SASL_PLAINTEXT does not look at who issued a token",
        "https": "listener SASL_PLAINTEXT gets the keys of tokens without encryption",
    }
    good = ["sasl.oauthbearer.expected.audience=kafka", "sasl.oauthbearer.expected.issuer=https://issuer"]
    for url, settings, expected in (
        (keys.as_uri(), good, set()),
        (keys.as_uri(), [], {"audience", "issuer"}),
        ("http://issuer/keys", good, {"https"}),
        ("https://issuer/keys", good[:1], {"issuer"}),
    ):
        caplog.clear()
        config = load_config(settings=[*settings_for(url), *settings], listen=[LISTEN])
        with closing(Broker.open(config, MemoryDisk(), SystemClock())) as broker:
            new_session = securities_of(broker)["SASL_PLAINTEXT"].new_session
        assert new_session is not None
        assert {what for what, text in warnings.items() if text in caplog.text} == expected


def test_unsigned_tokens_are_for_listeners_that_ask_for_them(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        assert (await try_to_login(kwire, unsigned()))[0] == 0
        assert await try_to_login(kwire, token()) == (FAILED, INVALID)

    handler = f"{LISTENER}.sasl.server.callback.handler.class={UNSECURED_HANDLER}"
    with_oauth_server(scenario, "", [handler])
    assert "listener SASL_PLAINTEXT accepts unsigned tokens, which anybody can make" in caplog.text
