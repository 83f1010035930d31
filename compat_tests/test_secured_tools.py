"""Kafka's own command line tools, unmodified, over SASL_SSL: ACLs, users, quotas, delegation tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from testkit.basics.waiting import eventually
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.security.secured import PLAIN, SCRAM_256, SCRAM_512, Secured
from testkit.security.secured_clients import Confluent, Java


@attrs.frozen
class Operator:
    """Runs tools as a user, at SASL_SSL."""

    java: JavaHost
    at: tuple[str | Path, ...]

    def succeeds(self, tool: str, *arguments: str) -> str:
        return self.java.succeed(tool, *self.at, *arguments).out

    def fails(self, tool: str, *arguments: str) -> str:
        ended = self.java.run(tool, *self.at, *arguments)
        assert ended.code == 1
        return ended.out + ended.err

    def shows(self, expected: str, tool: str, *arguments: str) -> None:
        """Waits until a tool shows it: a change may be visible a moment later."""
        eventually(lambda: expected in self.succeeds(tool, *arguments), f"{expected} in {arguments}")


@pytest.fixture
def admin(secured: Secured, java: JavaHost, java_at_listeners: Java) -> Operator:
    return operator(secured, java, java_at_listeners.properties(secured.way("SASL_SSL", SCRAM_512, user="admin")))


@pytest.fixture
def alice(secured: Secured, java: JavaHost, java_at_listeners: Java) -> Operator:
    """An operator who may do little."""
    return operator(secured, java, java_at_listeners.properties(secured.way("SASL_SSL", PLAIN)))


def operator(secured: Secured, java: JavaHost, properties: Path) -> Operator:
    return Operator(java, ("--bootstrap-server", secured.address("SASL_SSL"), "--command-config", properties))


def test_acls_are_added_listed_and_removed(admin: Operator, unique: Callable[[str], str]) -> None:
    topic = ("--topic", unique("topic"))
    read_and_write = ("--operation", "Read", "--operation", "Write", "--resource-pattern-type", "prefixed")
    dora = ("--add", "--allow-principal", "User:dora")
    added = admin.succeeds(tools.ACLS, *dora, "--allow-host", "127.0.0.1", *read_and_write, *topic)
    assert "(principal=User:dora, host=127.0.0.1, operation=WRITE, permissionType=ALLOW)" in added
    admin.succeeds(tools.ACLS, *dora, "--consumer", "--group", "g", *topic)
    pattern = ("--resource-pattern-type", "match")
    literal = f"Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name={topic[1]}, patternType=LITERAL)`"
    admin.shows(literal, tools.ACLS, "--list", *topic, *pattern)
    listed = admin.succeeds(tools.ACLS, "--list", *topic, *pattern)
    assert f"name={topic[1]}, patternType=PREFIXED)" in listed
    assert "(principal=User:dora, host=*, operation=DESCRIBE, permissionType=ALLOW)" in listed
    assert "resourceType=GROUP, name=g, patternType=LITERAL" in admin.succeeds(tools.ACLS, "--list", *dora_only())
    admin.succeeds(tools.ACLS, "--remove", "--force", *topic, *pattern)
    eventually(lambda: topic[1] not in admin.succeeds(tools.ACLS, "--list", *dora_only()), "the ACLs are gone")
    admin.succeeds(tools.ACLS, "--remove", "--force", "--group", "g")


def dora_only() -> tuple[str, str]:
    return ("--principal", "User:dora")


def test_who_may_not_alter_the_cluster_alters_no_acls(alice: Operator) -> None:
    assert "ClusterAuthorizationException" in alice.fails(tools.ACLS, "--list")
    adding = ("--add", "--allow-principal", "User:alice", "--operation", "All", "--topic", "*")
    assert "ClusterAuthorizationException" in alice.fails(tools.ACLS, *adding)


def test_topics_are_listed_to_who_may_describe_them(
    secured: Secured, admin: Operator, alice: Operator, unique: Callable[[str], str]
) -> None:
    closed = secured.create_topic(unique("closed"))
    assert closed in admin.succeeds(tools.TOPICS, "--list").split()
    seen = alice.java.run(tools.TOPICS, *alice.at, "--list").out.split()
    assert closed not in seen
    output = alice.fails(tools.TOPICS, "--create", "--topic", unique("of-alice"))
    assert "Error while executing topic command : Authorization failed." in output


def test_users_get_and_lose_passwords(secured: Secured, admin: Operator, unique: Callable[[str], str]) -> None:
    user = unique("user")
    entity = ("--entity-type", "users", "--entity-name", user)
    way = attrs.evolve(secured.way("SASL_SSL", SCRAM_256), user=user, password="of the tool")
    admin.succeeds(
        tools.CONFIGS, "--alter", *entity, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=of the tool]"
    )
    shown = f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-256=iterations=8192"
    admin.shows(shown, tools.CONFIGS, "--describe", *entity)
    assert Confluent().error_of_producing(way, "closed") == "TOPIC_AUTHORIZATION_FAILED"  # so it was let in
    admin.succeeds(tools.CONFIGS, "--alter", *entity, "--delete-config", SCRAM_256)
    eventually(lambda: user not in admin.succeeds(tools.CONFIGS, "--describe", *entity), "the user is gone")
    assert "_AUTHENTICATION" in Confluent().refusal(way, "closed")
    again = admin.fails(tools.CONFIGS, "--alter", *entity, "--delete-config", SCRAM_256)
    assert "ResourceNotFoundException: Attempt to delete a user credential that does not exist" in again


def test_a_user_is_altered_once_in_a_request(admin: Operator, unique: Callable[[str], str]) -> None:
    twice = "SCRAM-SHA-256=[password=x],SCRAM-SHA-512=[password=y]"
    entity = ("--entity-type", "users", "--entity-name", unique("user"))
    output = admin.fails(tools.CONFIGS, "--alter", *entity, "--add-config", twice)
    assert "DuplicateResourceException: A user credential cannot be altered twice in the same request" in output


def test_quotas_are_set_described_and_removed(admin: Operator, unique: Callable[[str], str]) -> None:
    user = unique("user")
    entity = ("--entity-type", "users", "--entity-name", user)
    client = ("--entity-type", "clients", "--entity-name", "c")
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
    admin.succeeds(tools.CONFIGS, "--alter", *entity, "--add-config", rates)
    admin.succeeds(tools.CONFIGS, "--alter", *entity, *client, "--add-config", "request_percentage=50")
    shown = f"Quota configs for user-principal '{user}' are consumer_byte_rate=2048.0, producer_byte_rate=1024.0"
    admin.shows(shown, tools.CONFIGS, "--describe", *entity)
    shown = f"Quota configs for user-principal '{user}', client-id 'c' are request_percentage=50.0"
    admin.shows(shown, tools.CONFIGS, "--describe", *entity, *client)
    admin.succeeds(tools.CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    eventually(lambda: "byte_rate" not in admin.succeeds(tools.CONFIGS, "--describe", *entity), "the user has no quota")
    admin.succeeds(tools.CONFIGS, "--alter", *entity, *client, "--delete-config", "request_percentage")


def test_a_quota_of_everybody_is_set_described_and_removed(admin: Operator) -> None:
    everybody = ("--entity-type", "users", "--entity-default")
    admin.succeeds(tools.CONFIGS, "--alter", *everybody, "--add-config", "controller_mutation_rate=1000000")
    shown = "Quota configs for the default user-principal are controller_mutation_rate=1000000.0"
    admin.shows(shown, tools.CONFIGS, "--describe", *everybody)
    admin.succeeds(tools.CONFIGS, "--alter", *everybody, "--delete-config", "controller_mutation_rate")


def test_a_quota_below_zero_is_refused(admin: Operator, unique: Callable[[str], str]) -> None:
    entity = ("--entity-type", "users", "--entity-name", unique("user"))
    output = admin.fails(tools.CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=-1")
    assert "producer_byte_rate must be greater than 0" in output


def test_who_may_not_describe_the_cluster_sees_no_users(alice: Operator) -> None:
    output = alice.fails(tools.CONFIGS, "--describe", "--entity-type", "users", "--entity-name", "bob")
    assert "ClusterAuthorizationException: Cluster authorization failed." in output


def last_row(output: str) -> list[str]:
    """The columns of a table's last row."""
    return [line for line in output.splitlines() if line.strip()][-1].split()


def test_a_delegation_token_is_made_used_renewed_and_expired(
    secured: Secured, java: JavaHost, java_at_listeners: Java, alice: Operator, open_topic: str
) -> None:
    made = alice.succeeds(
        tools.DELEGATION_TOKENS, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
    )
    token_id, hmac, owner = last_row(made)[:3]
    assert owner == "User:alice"
    owned = ("--describe", "--owner-principal", "User:alice")
    alice.shows(token_id, tools.DELEGATION_TOKENS, *owned)

    way = attrs.evolve(secured.way("SASL_SSL", SCRAM_256), user=token_id, password=hmac)
    by_token = java_at_listeners.properties(way, by_token=True)
    assert java.succeed("SecuredScenarios", "roundTrip", by_token, open_topic).lines[-1] == "passed"
    who_came_by_a_token = operator(secured, java, by_token)
    output = who_came_by_a_token.fails(tools.DELEGATION_TOKENS, "--create", "--max-life-time-period", "-1")
    assert "UnsupportedByAuthenticationException" in output

    period = ("--renew-time-period", "-1", "--hmac", hmac)
    bob = operator(secured, java, java_at_listeners.properties(secured.way("SASL_SSL", SCRAM_256, user="bob")))
    assert "Completed renew operation" in bob.succeeds(tools.DELEGATION_TOKENS, "--renew", *period)
    alice.succeeds(tools.DELEGATION_TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    eventually(lambda: token_id not in alice.succeeds(tools.DELEGATION_TOKENS, *owned), "the token is gone")
    refused = java.succeed("SecuredScenarios", "refusal", by_token, open_topic).out
    assert refused.startswith("SaslAuthenticationException: ")


def test_a_stranger_to_a_delegation_token_neither_sees_nor_renews_it(
    secured: Secured, java: JavaHost, java_at_listeners: Java, alice: Operator
) -> None:
    made = alice.succeeds(tools.DELEGATION_TOKENS, "--create", "--max-life-time-period", "-1")
    token_id, hmac = last_row(made)[:2]
    bob = operator(secured, java, java_at_listeners.properties(secured.way("SASL_SSL", SCRAM_256, user="bob")))
    assert token_id not in bob.succeeds(tools.DELEGATION_TOKENS, "--describe")
    output = bob.fails(tools.DELEGATION_TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "DelegationTokenOwnerMismatchException" in output
    alice.succeeds(tools.DELEGATION_TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
