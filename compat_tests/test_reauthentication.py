"""Reauthentication: with connections.max.reauth.ms, a client authenticates again in the same connection in time.

Clients with KIP-368 do so. aiokafka does not: the broker closes its connections, and it makes new ones. All continue
to produce and to consume.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from contextlib import suppress

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.metadata import MetadataRequest
from kwire_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest

from testkit.clients import aio, confluent, kafka_python
from testkit.raw.client import ConnectionClosed, RawClient
from testkit.security.secured import BRIEF_MS, OAUTHBEARER, PASSWORDS, PLAIN, SCRAM_256, Secured
from testkit.security.secured_clients import GROUP, Aiokafka, Confluent, Java, KafkaPython

STAYS_FOR_S = 4.0 * BRIEF_MS / 1000
TWO_TIMES = 2
"""An authentication is repeated before it ends: three times in that time, or twice where a client was late once."""
PAUSE_S = 0.05


def numbers_until_it_ends() -> Iterator[int]:
    end = time.monotonic() + STAYS_FOR_S
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1


@pytest.mark.parametrize("mechanism", [SCRAM_256, OAUTHBEARER])
def test_the_java_clients_stay(secured: Secured, java_at_listeners: Java, open_topic: str, mechanism: str) -> None:
    properties = java_at_listeners.properties(secured.way("BRIEF", mechanism))
    stay_ms = str(int(STAYS_FOR_S * 1000))
    ended = java_at_listeners.host.succeed("SecuredScenarios", "staysFor", properties, open_topic, stay_ms)
    records, of_the_producer, of_the_consumer = map(int, ended.lines[-1].split())
    assert records > 1
    assert of_the_producer >= TWO_TIMES
    assert of_the_consumer >= TWO_TIMES


def test_confluent_clients_stay_in_their_connections(secured: Secured, open_topic: str) -> None:
    connects: dict[str, int] = {}

    def note(statistics: str) -> None:
        of_client = json.loads(statistics)
        for broker in of_client["brokers"].values():
            if broker["source"] == "learned":
                connects[of_client["name"]] = broker["connects"]

    way = secured.way("BRIEF", SCRAM_256)
    config = {**Confluent.config(way), "statistics.interval.ms": 200, "stats_cb": note}
    values = []
    with (
        confluent.producing(way.address, **config) as producer,
        confluent.reading(way.address, open_topic, **config, **{"group.id": GROUP}) as consumer,
    ):
        for number in numbers_until_it_ends():
            confluent.send_all(producer, open_topic, [b"%d" % number])
            values += confluent.values_of(confluent.take(consumer, 1))
    assert values == [b"%d" % number for number in range(len(values))]
    assert list(connects.values()) == [1, 1]


def test_kafka_python_clients_stay_in_their_connections(
    secured: Secured, open_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kafka.net.connection")
    way = secured.way("BRIEF", SCRAM_256)
    config = KafkaPython.config(way)
    values = []
    with (
        kafka_python.producing(way.address, **config) as producer,
        kafka_python.reading(way.address, open_topic, **config) as consumer,
    ):
        for number in numbers_until_it_ends():
            kafka_python.send_all(producer, open_topic, [b"%d" % number])
            values += kafka_python.values_of(kafka_python.take(consumer, 1))
            time.sleep(PAUSE_S)
    assert values == [b"%d" % number for number in range(len(values))]
    assert caplog.text.count("Beginning SASL re-authentication") >= 2 * TWO_TIMES
    assert "re-authentication failed" not in caplog.text


@aio.in_a_loop
async def test_aiokafka_clients_continue_in_other_connections(secured: Secured, open_topic: str) -> None:
    way = secured.way("BRIEF", SCRAM_256)
    config = Aiokafka.config(way)
    values: list[bytes | None] = []
    async with (
        aio.producing(way.address, **config) as producer,
        aio.reading(way.address, open_topic, **config) as consumer,
    ):
        for number in numbers_until_it_ends():
            await aio.send_all(producer, open_topic, [b"%d" % number])
            values += aio.values_of(await aio.take(consumer, 1))
            await asyncio.sleep(PAUSE_S)
    assert values == [b"%d" % number for number in range(len(values))]


@attrs.frozen
class Connection:
    """A connection that authenticates when the test calls it. Raises ConnectionClosed."""

    raw: RawClient

    def authenticate(
        self, mechanism: str = PLAIN, user: str = "alice", password: str | None = None, token: str = ""
    ) -> SaslAuthenticateResponse:
        self.raw.call(SaslHandshakeRequest(mechanism), 1)
        of_user = f"\0{user}\0{password or PASSWORDS[user]}"
        first = f"n,,\x01auth=Bearer {token}\x01\x01" if token else of_user
        answer: SaslAuthenticateResponse = self.raw.call(SaslAuthenticateRequest(first.encode()), 2)
        return answer

    def is_served(self) -> bool:
        try:
            return bool(self.raw.call(MetadataRequest([]), 12).brokers)
        except ConnectionClosed:
            return False


@pytest.fixture
def brief(secured: Secured) -> Iterator[Connection]:
    """At the listener where an authentication does not last."""
    with RawClient(secured.address("BRIEF")) as raw:
        yield Connection(raw)


@pytest.fixture
def lasting(secured: Secured) -> Iterator[Connection]:
    with RawClient(secured.address("SASL_PLAINTEXT")) as raw:
        yield Connection(raw)


def test_the_broker_returns_how_long_an_authentication_lasts(
    secured: Secured, brief: Connection, lasting: Connection
) -> None:
    assert brief.authenticate().session_lifetime_ms == BRIEF_MS
    assert lasting.authenticate().session_lifetime_ms == 0


def test_a_token_shortens_how_long_an_authentication_lasts(
    secured: Secured, brief: Connection, lasting: Connection
) -> None:
    token = secured.tokens.issue("alice", lasts_s=100)
    assert brief.authenticate(OAUTHBEARER, token=token).session_lifetime_ms == BRIEF_MS
    assert 60_000 < lasting.authenticate(OAUTHBEARER, token=token).session_lifetime_ms <= 100_000


def test_only_another_authentication_is_heard_after_the_end_of_one(secured: Secured, brief: Connection) -> None:
    with RawClient(secured.address("BRIEF")) as raw:
        silent = Connection(raw)
        assert silent.authenticate().error_code == ErrorCode.NONE
        assert brief.authenticate().error_code == ErrorCode.NONE
        assert silent.is_served()
        time.sleep(BRIEF_MS / 1000 + PAUSE_S)
        assert brief.authenticate().session_lifetime_ms == BRIEF_MS
        assert brief.is_served()
        assert not silent.is_served()


def test_another_authentication_is_for_the_same_principal(brief: Connection) -> None:
    brief.authenticate(user="alice")
    refused = brief.authenticate(user="bob")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    message = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert refused.error_message == message
    assert not brief.is_served()


def test_another_authentication_is_by_the_same_mechanism(secured: Secured, brief: Connection) -> None:
    brief.authenticate()
    # Apache Kafka closes the connection without an answer.
    with suppress(ConnectionClosed):
        assert brief.authenticate(OAUTHBEARER, token=secured.tokens.issue("alice")).error_code != ErrorCode.NONE
    assert not brief.is_served()


def test_a_connection_ends_when_another_authentication_fails(brief: Connection) -> None:
    brief.authenticate()
    assert brief.authenticate(password="wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not brief.is_served()


def test_another_authentication_is_refused_where_none_is_needed(lasting: Connection) -> None:
    lasting.authenticate()
    refused = lasting.authenticate()
    assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert refused.error_message == "SaslAuthenticate request received after successful authentication"
    assert lasting.is_served()


def test_a_connection_authenticates_again_once_a_second_at_most(brief: Connection) -> None:
    brief.authenticate()
    assert brief.authenticate().error_code == ErrorCode.NONE
    assert brief.authenticate().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert brief.is_served()
