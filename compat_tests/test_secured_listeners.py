"""Each client authenticates at each kind of listener by each mechanism, and gets the right principal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AclOperation, AdminClient

from testkit.clients import confluent
from testkit.security.secured import LISTENERS, MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_256, SCRAM_512, Secured, Way
from testkit.security.secured_clients import CLIENTS, Client, Confluent

WITHOUT_SASL = ("PLAINTEXT", "SSL", "SSL with a certificate", "MUTUAL with a certificate")
CALL_TIMEOUT_S = 20.0


def way_without_sasl(secured: Secured, name: str) -> Way:
    listener, _, certificate = name.partition(" ")
    return secured.way(listener, identity=secured.certificates.client if certificate else None)


@pytest.mark.parametrize("name", WITHOUT_SASL)
@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_records_go_and_come_by_a_protocol_without_sasl(
    secured: Secured, client: Client, name: str, open_topic: str
) -> None:
    client.round_trip(way_without_sasl(secured, name), open_topic)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_records_go_and_come_by_a_mechanism(
    secured: Secured, client: Client, listener: str, mechanism: str, open_topic: str
) -> None:
    client.round_trip(secured.way(listener, mechanism), open_topic)


@pytest.mark.parametrize("listener", [name for name in LISTENERS if name not in ("EXPIRED", "MISNAMED")])
def test_metadata_has_the_address_of_the_listener_that_the_client_came_through(secured: Secured, listener: str) -> None:
    if LISTENERS[listener].startswith("SASL"):
        way = secured.way(listener, PLAIN)
    else:
        way = secured.way(listener, identity=secured.certificates.client)
    admin = AdminClient({"bootstrap.servers": way.address, **Confluent.config(way)}, logger=confluent.quiet)
    (broker,) = admin.list_topics(timeout=CALL_TIMEOUT_S).brokers.values()
    assert f"{broker.host}:{broker.port}" == secured.address(listener)
    (node,) = admin.describe_cluster().result(CALL_TIMEOUT_S).nodes
    assert f"{node.host}:{node.port}" == secured.address(listener)


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
def test_a_client_is_known_by_its_certificate(secured: Secured, listener: str, unique: Callable[[str], str]) -> None:
    topic = secured.create_topic(unique("of-carol"))
    way = secured.way(listener, identity=secured.certificates.client)
    assert Confluent().error_of_producing(way, topic) == "TOPIC_AUTHORIZATION_FAILED"
    secured.allow("User:carol", AclOperation.ALL, topic)
    Confluent().round_trip(way, topic)


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER])
def test_a_client_is_known_by_its_user_or_the_subject_of_its_token(
    secured: Secured, mechanism: str, unique: Callable[[str], str]
) -> None:
    topic = secured.create_topic(unique("of-alice"))
    secured.allow("User:alice", AclOperation.ALL, topic)
    Confluent().round_trip(secured.way("SASL_SSL", mechanism), topic)
    refused = Confluent().error_of_producing(secured.way("SASL_SSL", mechanism, user="bob"), topic)
    assert refused == "TOPIC_AUTHORIZATION_FAILED"


def test_a_client_at_sasl_with_tls_is_its_user_and_not_its_certificate(
    secured: Secured, unique: Callable[[str], str]
) -> None:
    topic = secured.create_topic(unique("of-alice"))
    secured.allow("User:alice", AclOperation.ALL, topic)
    way = secured.way("SASL_SSL", PLAIN, identity=secured.certificates.client)
    Confluent().round_trip(way, topic)
