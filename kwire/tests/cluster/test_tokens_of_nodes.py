"""Delegation tokens in a cluster: every node has those of the others, and one removes the expired ones."""

from __future__ import annotations

import trio
from kwire_protocol.internal.metadata_security import DelegationTokenRecord
from kwire_protocol.messages.create_delegation_token import CreateDelegationTokenRequest

from kwire.metadata.controller.access.delegation_tokens import create_token, expire_token
from kwire.node.broker import Broker
from kwire.security.delegation_tokens import hmac_of
from kwire.security.principal import Principal
from testkit.basics.futures import at_once
from testkit.cluster.scripted_cluster import ScriptedCluster

ALICE = Principal("User", "alice")
KEY = "delegation.token.secret.key=key"


def made_at(broker: Broker) -> tuple[str, bytes]:
    """Returns the id and the secret of a new token."""
    request = CreateDelegationTokenRequest()
    record = at_once(broker.metadata.change(create_token, request, owner=ALICE, requester=ALICE))
    return record.token_id, hmac_of("key", record.token_id)


def test_a_token_that_one_node_made_is_known_to_the_other_by_its_secret() -> None:
    cluster = ScriptedCluster()
    one, other = cluster.open(1, KEY), cluster.open(2, KEY)
    first_id, first = made_at(one)
    tokens = other.metadata.delegation_tokens  # From now on it follows.
    assert tokens is not None
    assert tokens.id_of(first) == first_id
    second_id, second = made_at(one)
    assert tokens.id_of(second) == second_id
    at_once(other.metadata.change(expire_token, tokens.id_of, second, period_ms=-1, requester=ALICE))
    assert list(one.metadata.image.access.delegation_tokens) == list(tokens.tokens) == [first_id]
    assert tokens.id_of(second) is None


def test_the_controller_removes_tokens_that_have_expired() -> None:
    cluster = ScriptedCluster()
    controller, other = cluster.open(1, KEY), cluster.open(2, KEY)
    expired = DelegationTokenRecord("User:alice", "User:alice", [], 1, 2, 2, "expired")
    at_once(other.metadata.change(lambda _: ([expired], None)))
    trio.run(other.housekeeping.remove_expired_tokens)
    assert "expired" in controller.metadata.image.access.delegation_tokens
    trio.run(controller.housekeeping.remove_expired_tokens)
    assert "expired" not in other.metadata.image.access.delegation_tokens
