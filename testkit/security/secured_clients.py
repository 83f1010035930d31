"""The clients at secured listeners: their credentials, and their errors when they are rejected."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import aiokafka.abc
import attrs
import kafka.errors
from aiokafka import AIOKafkaClient
from confluent_kafka import KafkaError, Producer
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from testkit.basics.waiting import Deadline
from testkit.clients import aio, confluent, kafka_python
from testkit.java.java_host import JavaHost
from testkit.security.certificates import PASSWORD
from testkit.security.secured import OAUTHBEARER, OPEN, Way

_MODULES: Final = "org.apache.kafka.common.security"
GROUP: Final = f"{OPEN}clients"
"""Consumers of librdkafka are in a group even if they are assigned to their partitions."""
_VALUE: Final = b"a record"
_TRIES_FOR_MS: Final = 600
"""The time for which kafka-python retries a broker that rejects it, at first."""
REFUSED_CERTIFICATE: Final = {
    "kafka-python": "SSL.*ALERT|EOF occurred|Broken pipe|socket disconnected",
    "aiokafka": r"Connection at \S+ closed|SSL.*ALERT",
    "confluent-kafka": "^_(TRANSPORT|SSL): .*alert",
    "Java": "^SslAuthenticationException: ",
}
"""The pattern of `Client.refusal`. The broker refuses a certificate with an alert, after the client's handshake ended
(TLS 1.3), and a client that writes to the connection then may not receive it.
"""


@contextmanager
def _warnings(logger: str, pattern: str) -> Iterator[list[str]]:
    """Collects a client's log messages from level warning on whose start matches `pattern`."""

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if re.match(pattern, text := record.getMessage()):
                messages.append(text)

    messages: list[str] = []
    listening = Listening(logging.WARNING)
    logging.getLogger(logger).addHandler(listening)
    try:
        yield messages
    finally:
        logging.getLogger(logger).removeHandler(listening)


class Client(Protocol):
    def round_trip(self, way: Way, topic: str) -> None:
        """Produces a record to the topic, which is new, and consumes it."""

    def refusal(self, way: Way, topic: str) -> str:
        """The client's error when it is rejected: the error's class or code, and its text. "none" if it is accepted."""

    def error_of_producing(self, way: Way, topic: str) -> str:
        """The class or the code of the error with which a record for the topic is refused."""


class KafkaPython:
    def round_trip(self, way: Way, topic: str) -> None:
        config = self.config(way)
        with kafka_python.producing(way.address, **config) as producer:
            kafka_python.send_all(producer, topic, [_VALUE])
        (record,) = kafka_python.read_all(way.address, topic, 1, **config)
        assert record.value == _VALUE

    def refusal(self, way: Way, topic: str) -> str:
        """The error in its log, since it continues to retry."""
        deadline = Deadline()
        tries_for_ms = _TRIES_FOR_MS
        while deadline.not_over("an attempt to connect"):
            config = {**self.config(way), "bootstrap_timeout_ms": tries_for_ms}
            with (
                _warnings("kafka.net.manager", r"Bootstrap .* failed") as messages,
                suppress(kafka.errors.KafkaTimeoutError),
            ):
                admin = KafkaAdminClient(bootstrap_servers=way.address, **config)
                admin.close()
                return "none"
            if reasons := [it for it in messages if "RequestTimedOutError" not in it]:
                return reasons[0]
            tries_for_ms *= 2  # the machine is busy
        raise AssertionError("unreachable")

    def error_of_producing(self, way: Way, topic: str) -> str:
        with kafka_python.producing(way.address, **self.config(way)) as producer:
            try:
                kafka_python.send_all(producer, topic, [_VALUE])
            except kafka.errors.KafkaError as error:
                return type(error).__name__
        return "none"

    @staticmethod
    def config(way: Way) -> dict[str, Any]:
        config: dict[str, Any] = {"security_protocol": way.protocol}
        if way.has_tls:
            config["ssl_cafile"] = str(way.authority)
            if way.identity is not None:
                config |= {"ssl_certfile": str(way.identity.pem), "ssl_keyfile": str(way.identity.pem)}
        if way.mechanism:
            config["sasl_mechanism"] = way.mechanism
            if way.mechanism == OAUTHBEARER:
                config["sasl_oauth_token_provider"] = _Token(way.token)
            else:
                config |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
        return config


class _Token(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class Aiokafka:
    def round_trip(self, way: Way, topic: str) -> None:
        async def go() -> None:
            config = self.config(way)
            async with aio.producing(way.address, **config) as producer:
                await aio.send_all(producer, topic, [_VALUE])
            (record,) = await aio.read_all(way.address, topic, 1, **config)
            assert record.value == _VALUE

        asyncio.run(go())

    def refusal(self, way: Way, topic: str) -> str:
        """The error in its log."""

        async def go() -> str:
            client = AIOKafkaClient(bootstrap_servers=way.address, **self.config(way))
            with _warnings("aiokafka", "Unable|No broker") as messages:
                try:
                    await client.bootstrap()
                    return "none" if client.cluster.brokers() else messages[0]
                except aiokafka.errors.KafkaConnectionError:
                    return messages[0]
                finally:
                    await client.close()

        return asyncio.run(go())

    def error_of_producing(self, way: Way, topic: str) -> str:
        async def go() -> str:
            async with aio.producing(way.address, **self.config(way)) as producer:
                try:
                    await aio.send_all(producer, topic, [_VALUE])
                except aiokafka.errors.KafkaError as error:
                    return type(error).__name__
            return "none"

        return asyncio.run(go())

    @staticmethod
    def config(way: Way) -> dict[str, Any]:
        config: dict[str, Any] = {"security_protocol": way.protocol}
        if way.has_tls:
            context = ssl.create_default_context(cafile=str(way.authority))
            if way.identity is not None:
                context.load_cert_chain(way.identity.pem)
            config["ssl_context"] = context
        if way.mechanism:
            config["sasl_mechanism"] = way.mechanism
            if way.mechanism == OAUTHBEARER:
                config["sasl_oauth_token_provider"] = _AsyncToken(way.token)
            else:
                config |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
        return config


class _AsyncToken(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class Confluent:
    def round_trip(self, way: Way, topic: str) -> None:
        config = self.config(way)
        with confluent.producing(way.address, **config) as producer:
            confluent.send_all(producer, topic, [_VALUE])
        (record,) = confluent.read_all(way.address, topic, 1, **config | {"group.id": GROUP})
        assert record.value() == _VALUE

    def refusal(self, way: Way, topic: str) -> str:
        errors: list[KafkaError] = []
        config = {**self.config(way), "bootstrap.servers": way.address, "error_cb": errors.append}
        producer = Producer(config, logger=confluent.quiet)
        deadline = Deadline()
        while deadline.not_over("an error"):
            producer.poll(0.02)
            # The error that all brokers are down repeats this, without the reason.
            reasons = [it for it in errors if it.code() != KafkaError._ALL_BROKERS_DOWN]
            if reasons:
                return f"{reasons[0].name()}: {reasons[0].str()}"
        raise AssertionError("unreachable")

    def error_of_producing(self, way: Way, topic: str) -> str:
        with confluent.producing(way.address, **self.config(way)) as producer:
            return str(confluent.refusal_of(producer, topic, _VALUE).name())

    @staticmethod
    def config(way: Way) -> dict[str, Any]:
        config: dict[str, Any] = {"security.protocol": way.protocol}
        if way.has_tls:
            config["ssl.ca.location"] = str(way.authority)
            if way.identity is not None:
                config |= {"ssl.certificate.location": str(way.identity.pem), "ssl.key.location": str(way.identity.pem)}
        if way.mechanism:
            config["sasl.mechanisms"] = way.mechanism
            if way.mechanism == OAUTHBEARER:
                config["oauth_cb"] = lambda _: (way.token, _FAR_FUTURE_S)
            else:
                config |= {"sasl.username": way.user, "sasl.password": way.password}
        return config


_FAR_FUTURE_S: Final = 4_000_000_000.0
"""The time when librdkafka requests another token. An expired one is for the broker to refuse."""


@attrs.frozen
class Java:
    host: JavaHost
    folder: Path
    """The folder for the files that its clients read."""

    def round_trip(self, way: Way, topic: str) -> None:
        ended = self.host.succeed("SecuredScenarios", "roundTrip", self.properties(way), topic)
        assert ended.lines[-1] == "passed"

    def refusal(self, way: Way, topic: str) -> str:
        return self.host.succeed("SecuredScenarios", "refusal", self.properties(way), topic).out.strip()

    def error_of_producing(self, way: Way, topic: str) -> str:
        return self.refusal(way, topic).partition(":")[0]

    def properties(self, way: Way, *, by_token: bool = False) -> Path:
        """A file with a client's properties, as `--command-config` of Kafka's tools takes it, too.

        by_token: user and password are a delegation token's id and HMAC.
        """
        path = self.folder / f"client-{len(list(self.folder.iterdir()))}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self._config(way, by_token).items()))
        return path

    def _config(self, way: Way, by_token: bool) -> dict[str, str]:
        config = {"bootstrap.servers": way.address, "security.protocol": way.protocol}
        if way.has_tls:
            config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(way.authority)}
            if way.identity is not None:
                config |= {
                    "ssl.keystore.type": "PKCS12",
                    "ssl.keystore.location": str(way.identity.key_store),
                    "ssl.keystore.password": PASSWORD,
                    "ssl.key.password": PASSWORD,
                }
        if way.mechanism:
            config["sasl.mechanism"] = way.mechanism
            if way.mechanism == OAUTHBEARER:
                token = self.folder / f"token-{len(list(self.folder.iterdir()))}.jwt"
                token.write_text(way.token)
                config |= {
                    "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
                    "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
                    # Clients with the same text share a login. The option only makes the texts differ.
                    "sasl.jaas.config": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required file="{token.name}";',
                }
            else:
                module = "plain.PlainLoginModule" if way.mechanism == "PLAIN" else "scram.ScramLoginModule"
                login = f'username="{way.user}" password="{way.password}"{" tokenauth=true" if by_token else ""}'
                config["sasl.jaas.config"] = f"{_MODULES}.{module} required {login};"
        return config


CLIENTS: Final = ("kafka-python", "aiokafka", "confluent-kafka", "Java")


def client(name: str, java: Callable[[], Java]) -> Client:
    """Returns one of `CLIENTS`. `java` is called for that one only: its process takes long to start."""
    kinds: dict[str, Callable[[], Client]] = {
        "kafka-python": KafkaPython,
        "aiokafka": Aiokafka,
        "confluent-kafka": Confluent,
        "Java": java,
    }
    return kinds[name]()
