"""Keys of tokens, kept fresh beside the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from kwire.config.definition import ConfigError
from kwire.config.oauth import SignedTokenConfig
from kwire.network.jwks import FreshKeys
from kwire.security.oauth.fetching import KeyFetch, KeysUnavailable
from kwire.security.oauth.keys import KeySet
from kwire.security.oauth.signed import TokenRules
from kwire.security.tls.settings import TlsSettings
from testkit.security.oauth.issuer import jwk, jwks
from testkit.security.oauth.key_server import key_server

KEYS = KeySet.parse(jwks(jwk("k1")))
OTHERS = KeySet.parse(jwks(jwk("k2")))


class PreparedFetch(KeyFetch):
    """A fetch with these outcomes, one after the other: keys, or the reason for none."""

    def __init__(self, *outcomes: KeySet | str, url: str = "https://issuer/keys") -> None:
        super().__init__(url)
        self.outcomes = list(outcomes)

    def fetch(self) -> KeySet:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, str):
            raise KeysUnavailable(outcome)
        return outcome


def config(url: str = "https://issuer/keys") -> SignedTokenConfig:
    return SignedTokenConfig(url, 60_000, 100, 10_000, TokenRules())


def monotonic_ms() -> int:
    return round(trio.current_time() * 1000)


async def run_until(keys: FreshKeys, is_so: Callable[[], bool]) -> None:
    """Waits for it in steps of the test's clock, which jumps when all tasks wait."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keys.run, monotonic_ms)
        while not is_so():
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()


def in_trio(keys: FreshKeys, is_so: Callable[[], bool]) -> None:
    trio.run(run_until, keys, is_so, clock=trio.testing.MockClock(autojump_threshold=0.001))


def test_keys_are_fetched_until_it_succeeds_and_each_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    keys = FreshKeys(config(), "SASL", PreparedFetch("no answer", "no answer", "garbage", KEYS))
    in_trio(keys, lambda: keys.refresh.keys is KEYS)
    assert keys.refresh.trouble is None
    assert caplog.messages == [
        "listener SASL: the keys of OAUTHBEARER tokens cannot be fetched: no answer; "
        "no token is accepted until they can",
        "listener SASL: the keys of OAUTHBEARER tokens cannot be fetched: garbage; no token is accepted until they can",
        "listener SASL: the keys of OAUTHBEARER tokens come from https://issuer/keys",
    ]


def test_an_unknown_key_brings_new_keys_soon() -> None:
    keys = FreshKeys(config(), "SASL", PreparedFetch(KEYS, OTHERS))
    started: list[int] = []

    def note_once() -> bool:
        if keys.refresh.keys is KEYS and not started:
            started.append(monotonic_ms())
            keys.refresh.note_unknown("k2")
        return keys.refresh.keys is OTHERS

    async def main() -> int:
        await run_until(keys, note_once)
        return monotonic_ms() - started[0]

    waited_ms = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.001))
    assert waited_ms < 15_000


def test_the_keys_of_before_are_used_while_the_server_is_away(caplog: pytest.LogCaptureFixture) -> None:
    fetch = PreparedFetch(KEYS, *["away"] * 6, OTHERS)
    keys = FreshKeys(config(), "SASL", fetch)
    in_trio(keys, lambda: len(fetch.outcomes) < 6)
    assert keys.refresh.keys is KEYS
    assert caplog.messages == [
        "listener SASL: the keys of OAUTHBEARER tokens cannot be fetched: away; those of before are used until they can"
    ]


def test_a_file_is_read_before_the_start_and_noticed_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(jwks(jwk("k1")))
    keys = FreshKeys(config(file.as_uri()), "SASL")
    keys.check(0)
    assert [key.kid for key in keys.refresh.keys.keys] == ["k1"]
    file.write_bytes(jwks(jwk("second")))
    in_trio(keys, lambda: keys.refresh.keys.keys[0].kid == "second")


@pytest.mark.parametrize(
    ("url", "refresh_ms", "looked_at_ms"),
    [
        ("file:///keys.json", 60_000, 5000),
        ("file:///keys.json", 1000, 1000),
        ("https://issuer/keys", 60_000, 60_000),
        ("https://issuer/keys", 1000, 1000),
    ],
)
def test_a_file_is_looked_at_every_few_seconds_and_a_server_when_it_is_configured(
    url: str, refresh_ms: int, looked_at_ms: int
) -> None:
    fresh = FreshKeys(attrs.evolve(config(url), refresh_ms=refresh_ms), "SASL")
    fresh.refresh.succeeded(KEYS, 0)
    assert fresh.refresh.due_ms(1) == looked_at_ms


def test_a_file_that_is_missing_or_wrong_prevents_the_start(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    with pytest.raises(ConfigError, match="listener SASL: file://.*keys.json cannot be read: No such file"):
        FreshKeys(config(file.as_uri()), "SASL").check(0)
    file.write_bytes(b"[]")
    with pytest.raises(ConfigError, match="not a JSON Web Key Set"):
        FreshKeys(config(file.as_uri()), "SASL").check(0)
    FreshKeys(config("https://127.0.0.1:1/keys"), "SASL").check(0)
    missing = attrs.evolve(
        config(), tls=TlsSettings(truststore_type="PEM", truststore_location=str(tmp_path / "ca.pem"))
    )
    with pytest.raises(ConfigError, match="https://issuer/keys cannot be read: .*ca.pem"):
        FreshKeys(missing, "SASL").check(0)


def test_a_server_that_does_not_answer_does_not_hold_up_the_end() -> None:
    with key_server(b"", closes=False) as server:
        keys = FreshKeys(config(server.url()), "SASL")

        async def main() -> None:
            with trio.fail_after(5):
                await run_until(keys, lambda: server.request_received.acquire(blocking=False))

        trio.run(main)
