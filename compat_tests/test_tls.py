"""Unmodified clients over TLS, with keystores as Java's keytool makes them.

Kafka's own tools show what is particular to Java: PKCS12 under the name JKS, and a certificate that they change while
clients are connected.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import confluent_kafka
import kafka
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from devtools.java import java
from kwire.security.tls.dev_certificates import DevAuthority
from kwire.testing import Broker
from testkit.clients.confluent import consuming, producing, send_all, take
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.servers.brokers import KIND

pytestmark = pytest.mark.skipif(KIND != "kwire", reason="is about kwire alone, whatever KWIRE_COMPAT says")

PASSWORD = "correct-horse"
VALUES = [b"value %d" % number for number in range(100)]


@attrs.frozen
class Stores:
    """Keystores of a broker and of a client that trust each other, in `folder`: ca.pem, client.pem and PKCS12 files."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def client_properties(self) -> Path:
        file = self.folder / "client.properties"
        file.write_text(
            f"security.protocol=SSL\nssl.truststore.location={self.path('trust.p12')}\n"
            f"ssl.truststore.password={PASSWORD}\nssl.keystore.location={self.path('client.p12')}\n"
            f"ssl.keystore.password={PASSWORD}\n"
        )
        return file


def keytool(*arguments: str) -> None:
    command = [str(Path(java()).with_name("keytool")), *arguments, "-storepass", PASSWORD, "-noprompt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def as_pkcs12(pem: bytes) -> bytes:
    certificate = x509.load_pem_x509_certificate(pem)
    key = load_pem_private_key(pem, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return serialize_key_and_certificates(b"kafka", key, certificate, None, BestAvailableEncryption(PASSWORD.encode()))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    folder = tmp_path_factory.mktemp("stores")
    authority = DevAuthority.new()
    (folder / "ca.pem").write_bytes(authority.certificate)
    for name, pem in {
        "server": authority.server(),
        "renewed": authority.server(),
        "client": authority.client("alice"),
    }.items():
        (folder / f"{name}.pem").write_bytes(pem)
        (folder / f"{name}.p12").write_bytes(as_pkcs12(pem))
    keytool("-importcert", "-alias", "ca", "-file", str(folder / "ca.pem"), "-keystore", str(folder / "trust.p12"))
    return Stores(folder)


@pytest.fixture(scope="module")
def broker(stores: Stores) -> Iterator[Broker]:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL",
        "ssl.keystore.location": stores.path("server.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": stores.path("trust.p12"),
        "ssl.truststore.password": PASSWORD,
        "ssl.client.auth": "required",
    }
    with Broker(settings=settings) as running:
        yield running


def of_librdkafka(stores: Stores) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": stores.path("ca.pem"),
        "ssl.certificate.location": stores.path("client.pem"),
        "ssl.key.location": stores.path("client.pem"),
    }


def test_librdkafka_produces_and_consumes(broker: Broker, stores: Stores) -> None:
    with producing(broker.address, **of_librdkafka(stores)) as producer:
        for value in VALUES:
            producer.produce("librdkafka", value)
    with consuming(broker.address, "librdkafka", **of_librdkafka(stores)) as consumer:
        assert [message.value() for message in take(consumer, len(VALUES))] == VALUES


def test_kafka_python_produces_and_consumes(broker: Broker, stores: Stores) -> None:
    settings = {
        "bootstrap_servers": broker.address,
        "security_protocol": "SSL",
        "ssl_cafile": stores.path("ca.pem"),
        "ssl_certfile": stores.path("client.pem"),
        "ssl_keyfile": stores.path("client.pem"),
    }
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send("kafka-python", value)
    producer.close()
    consumer = kafka.KafkaConsumer("kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings)
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


def test_javas_clients_produce_and_consume(broker: Broker, stores: Stores, java: JavaHost) -> None:
    at = ("--bootstrap-server", broker.address)
    config = ("--command-config", stores.client_properties())
    java.succeed(tools.CONSOLE_PRODUCER, *at, *config, "--topic", "java", stdin="one\ntwo\n")
    consumed = java.succeed(
        tools.CONSOLE_CONSUMER, *at, *config, "--topic", "java", "--from-beginning", "--max-messages", "2"
    )
    assert consumed.lines == ["one", "two"]


def test_javas_tool_changes_the_certificate_under_a_connected_client(
    broker: Broker, stores: Stores, java: JavaHost
) -> None:
    at = ("--bootstrap-server", broker.address, "--command-config", stores.client_properties())
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    name = "listener.name.plaintext.ssl.keystore.location"
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, **of_librdkafka(stores)})
    send_all(producer, "renewed", VALUES[:1])
    before = shown_by(broker, stores)
    refused = java.run(tools.CONFIGS, *at, "--alter", *of_broker, "--add-config", f"{name}={stores.path('client.p12')}")
    assert refused.code != 0
    assert "set ssl.allow.dn.changes=true" in refused.out + refused.err
    assert shown_by(broker, stores) == before
    java.succeed(tools.CONFIGS, *at, "--alter", *of_broker, "--add-config", f"{name}={stores.path('renewed.p12')}")
    assert shown_by(broker, stores) != before
    send_all(producer, "renewed", VALUES[1:2])


def shown_by(broker: Broker, stores: Stores) -> bytes | None:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=stores.path("ca.pem"))
    context.load_cert_chain(stores.path("client.pem"))
    with (
        socket.create_connection((broker.host, broker.port)) as sock,
        context.wrap_socket(sock, server_hostname=broker.host) as encrypted,
    ):
        return encrypted.getpeercert(binary_form=True)
