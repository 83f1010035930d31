"""Passwords, users, ACLs, quotas and certificates that change while clients are connected, and the effects on these."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, ResourceType
from kafka import OffsetAndMetadata, TopicPartition, errors
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)

from testkit.basics.waiting import Deadline, eventually
from testkit.clients import confluent, kafka_python
from testkit.raw.client import RawClient
from testkit.security.secured import OPEN, SCRAM_256, Secured, Way
from testkit.security.secured_clients import CLIENTS, GROUP, REFUSED_CERTIFICATE, Client, Confluent, KafkaPython

QUOTA_BYTES_PER_S = 20_000
NOT_FATAL = {"enable_idempotence": False}
"""An idempotent producer of kafka-python ends when it may not write."""


@pytest.fixture
def user(secured: Secured, unique: Callable[[str], str]) -> Iterator[str]:
    """A user of SCRAM with the password "first"."""
    name = unique("user")
    secured.set_password(name, "first", SCRAM_256)
    yield name
    secured.remove_user(name, SCRAM_256)


def way_of(secured: Secured, user: str, password: str, listener: str = "SASL_SSL") -> Way:
    return attrs.evolve(secured.way(listener, SCRAM_256), user=user, password=password)


def test_a_changed_password_is_for_those_who_come_later(secured: Secured, user: str, open_topic: str) -> None:
    old, new = (way_of(secured, user, password) for password in ("first", "second"))
    with kafka_python.producing(old.address, **KafkaPython.config(old)) as producer:
        kafka_python.send_all(producer, open_topic, [b"before"])
        secured.set_password(user, "second", SCRAM_256)
        eventually(lambda: "_AUTHENTICATION" in Confluent().refusal(old, open_topic), "the first password is refused")
        kafka_python.send_all(producer, open_topic, [b"after"])
    records = confluent.read_all(new.address, open_topic, 2, **Confluent.config(new), **{"group.id": GROUP})
    assert confluent.values_of(records) == [b"before", b"after"]


def test_a_removed_user_stays_until_it_leaves(secured: Secured, user: str, open_topic: str) -> None:
    way = way_of(secured, user, "first")
    with kafka_python.producing(way.address, **KafkaPython.config(way)) as producer:
        kafka_python.send_all(producer, open_topic, [b"before"])
        secured.remove_user(user, SCRAM_256)
        eventually(lambda: "_AUTHENTICATION" in Confluent().refusal(way, open_topic), "the user is gone")
        kafka_python.send_all(producer, open_topic, [b"after"])
    secured.set_password(user, "first", SCRAM_256)


def test_a_changed_password_is_required_when_the_authentication_ends(
    secured: Secured, user: str, open_topic: str
) -> None:
    way = way_of(secured, user, "first", "BRIEF")
    failed: list[KafkaError] = []
    config = {**Confluent.config(way), "error_cb": failed.append}
    with confluent.producing(way.address, **config) as producer:
        confluent.send_all(producer, open_topic, [b"before"])
        secured.set_password(user, "second", SCRAM_256)
        eventually(lambda: _fails(producer, failed), "the first password is refused")
        secured.set_password(user, "first", SCRAM_256)
        confluent.send_all(producer, open_topic, [b"after"])  # librdkafka keeps trying


def _fails(producer: Producer, failed: list[KafkaError]) -> bool:
    producer.poll(0.05)
    return any(error.code() == KafkaError._AUTHENTICATION for error in failed)


def test_a_producer_gets_an_error_when_it_may_no_longer_write(
    secured: Secured, user: str, unique: Callable[[str], str]
) -> None:
    topic = secured.create_topic(unique("topic"))
    way = way_of(secured, user, "first")
    allowed = secured.allow(f"User:{user}", AclOperation.WRITE, topic)
    with kafka_python.producing(way.address, **NOT_FATAL, **KafkaPython.config(way)) as producer:
        eventually(lambda: _is_written(producer, topic), "the user may write")
        secured.forbid(allowed)
        eventually(lambda: not _is_written(producer, topic), "the user may not write")
        secured.add(allowed)
        eventually(lambda: _is_written(producer, topic), "the user may write again")


def _is_written(producer: Any, topic: str) -> bool:
    try:
        kafka_python.send_all(producer, topic, [b"value"])
    except errors.TopicAuthorizationFailedError:
        return False
    return True


def test_a_consumer_gets_an_error_when_it_may_no_longer_read(
    secured: Secured, user: str, unique: Callable[[str], str]
) -> None:
    topic = secured.create_topic(unique("topic"))
    confluent.fill(secured.address("PLAINTEXT"), topic, [b"first"])
    way = way_of(secured, user, "first")
    allowed = secured.allow(f"User:{user}", AclOperation.READ, topic)
    with kafka_python.reading(way.address, topic, **KafkaPython.config(way)) as consumer:
        (first,) = kafka_python.take(consumer, 1)
        secured.forbid(allowed)
        with pytest.raises(errors.TopicAuthorizationFailedError):
            kafka_python.poll_for_ever(consumer)
        confluent.fill(secured.address("PLAINTEXT"), topic, [b"second"])
        secured.add(allowed)
        second = _record_after_errors(consumer)
    assert (first.value, second.value) == (b"first", b"second")


def _record_after_errors(consumer: Any) -> Any:
    deadline = Deadline()
    while deadline.not_over("a record"):
        with suppress(errors.TopicAuthorizationFailedError):
            for records in consumer.poll(timeout_ms=200).values():
                (record,) = records
                return record
    raise AssertionError("unreachable")


def test_a_denial_is_stronger_than_what_is_allowed(secured: Secured, user: str, open_topic: str) -> None:
    way = way_of(secured, user, "first")
    denied = secured.binding(f"User:{user}", AclOperation.WRITE, ResourceType.TOPIC, open_topic, denies=True)
    with kafka_python.producing(way.address, **NOT_FATAL, **KafkaPython.config(way)) as producer:
        assert _is_written(producer, open_topic)
        secured.add(denied)
        eventually(lambda: not _is_written(producer, open_topic), "the user may not write")
        secured.forbid(denied)
        eventually(lambda: _is_written(producer, open_topic), "the user may write again")


def test_a_member_gets_an_error_when_it_may_no_longer_commit(
    secured: Secured, user: str, open_topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    way = way_of(secured, user, "first")
    allowed = secured.binding(f"User:{user}", AclOperation.READ, ResourceType.GROUP, group)
    with kafka_python.reading(way.address, open_topic, group_id=group, **KafkaPython.config(way)) as consumer:

        def commits() -> bool:
            try:
                consumer.commit({TopicPartition(open_topic, 0): OffsetAndMetadata(1, "", -1)})
            except errors.GroupAuthorizationFailedError:
                return False
            return True

        assert not commits()
        secured.add(allowed)
        eventually(commits, "the member may commit")
        secured.forbid(allowed)
        eventually(lambda: not commits(), "the member may not commit")


def test_a_quota_slows_a_producer_that_is_connected(secured: Secured, user: str, open_topic: str) -> None:
    way = way_of(secured, user, "first")
    throttled: list[float] = []
    config = {**Confluent.config(way), "throttle_cb": lambda event: throttled.append(event.throttle_time)}
    with confluent.producing(way.address, **config) as producer:
        confluent.send_all(producer, open_topic, [b"value"])
        assert throttled == []
        alter_quota(secured, user, QUOTA_BYTES_PER_S)
        deadline = Deadline()
        while not throttled and deadline.not_over("the producer is told to wait"):
            confluent.send_all(producer, open_topic, [bytes(QUOTA_BYTES_PER_S)])
        alter_quota(secured, user, None)
    assert throttled[0] > 0


def test_an_expired_certificate_is_replaced_while_the_broker_runs(secured: Secured, open_topic: str) -> None:
    location = "listener.name.expired.ssl.keystore.location"
    way = secured.way("EXPIRED", identity=secured.certificates.client)
    assert "certificate verify failed" in Confluent().refusal(way, open_topic)
    secured.alter_broker(location, str(secured.certificates.renewed_server.key_store))
    try:
        eventually(lambda: _is_let_in(way), "the new certificate is shown")
        Confluent().round_trip(way, open_topic)
    finally:
        secured.alter_broker(location, None)
    eventually(lambda: not _is_let_in(way), "the old certificate is shown again")


def _is_let_in(way: Way) -> bool:
    context = ssl.create_default_context(cafile=str(way.authority))
    host, _, port = way.address.partition(":")
    try:
        with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host):
            return True
    except ssl.SSLCertVerificationError:
        return False


@contextmanager
def trusted(secured: Secured, certificates: Path) -> Iterator[None]:
    """Lets the listener TRUSTING trust these certificates for a while. Changes take effect a moment later."""
    location = "listener.name.trusting.ssl.truststore.location"
    secured.alter_broker(location, str(certificates))
    try:
        yield
    finally:
        secured.alter_broker(location, None)


# No broker reads lists of revoked certificates. But a broker can stop trusting what it trusted.


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_certificate_is_refused_once_its_authority_is_trusted_no_more(
    secured: Secured, client_name: str, client: Client, open_topic: str, unique: Callable[[str], str]
) -> None:
    certificates = secured.certificates
    carol, other = (secured.way("TRUSTING", identity=it) for it in (certificates.client, certificates.stranger))
    eventually(lambda: KafkaPython().refusal(carol, open_topic) == "none", "all are trusted, also after other tests")
    client.round_trip(carol, open_topic)
    with trusted(secured, certificates.other_authority):
        eventually(
            lambda: re.search(REFUSED_CERTIFICATE[client_name], client.refusal(carol, open_topic)),
            "the certificate is refused",
        )
        client.round_trip(other, secured.create_topic(f"{OPEN}{unique('topic')}"))


def test_a_certificate_is_refused_once_it_is_no_longer_on_the_list(secured: Secured, open_topic: str) -> None:
    """The truststore has the clients' certificates. Apache Kafka names these as authorities to its clients, and clients
    in Java, and librdkafka, show none then that is not its own authority."""
    certificates, client = secured.certificates, KafkaPython()
    carol, dave, stranger = (
        secured.way("TRUSTING", identity=it)
        for it in (certificates.client, certificates.other_client, certificates.stranger)
    )
    with trusted(secured, certificates.listed):
        eventually(lambda: client.refusal(stranger, open_topic) != "none", "only what is on the list is trusted")
        assert client.refusal(carol, open_topic) == "none"
    with trusted(secured, certificates.listed_without_client):
        eventually(lambda: client.refusal(carol, open_topic) != "none", "it is no longer on the list")
        client.round_trip(dave, open_topic)


def test_a_certificate_of_other_names_does_not_replace_one(secured: Secured) -> None:
    location = "listener.name.expired.ssl.keystore.location"
    with pytest.raises(KafkaException) as refused:
        secured.alter_broker(location, str(secured.certificates.misnamed_server.key_store))
    assert refused.value.args[0].name() == "INVALID_REQUEST"


def alter_quota(secured: Secured, user: str, bytes_per_s: float | None) -> None:
    """Sets the quota of a user; None removes it."""
    change = OpData("producer_byte_rate", value=bytes_per_s or 0.0, remove=bytes_per_s is None)
    entity = AlterClientQuotasRequestEntityData("user", user)
    request = AlterClientQuotasRequest([AlterClientQuotasRequestEntryData([entity], [change])])
    with RawClient(secured.address("PLAINTEXT")) as client:
        (answer,) = client.call(request, 1).entries
    assert answer.error_code == ErrorCode.NONE
