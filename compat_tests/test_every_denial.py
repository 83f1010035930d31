"""The rights of docs/authorization.md for every API: a user without one of them is denied, a user with all is not.

Each row of the page's table is a case: a user who may do everything but that. It gets the error code of the row,
its request changes nothing, and the response names nothing that it may not see. And for each API a user has the rights
of its rows, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import attrs
import pytest

from testkit.basics.waiting import eventually
from testkit.security import requests as handlers
from testkit.security.denials import OWNER, Case, Request, Scene, acls, denying_broker, requests_of
from testkit.security.permissions import Permission, Row, page_name, refusals, rows
from testkit.servers import brokers

NOT_SERVED = {
    "alter_partition": "Apache Kafka serves it at its controllers' listener only",
    **({} if brokers.IS_4_4 else {"streams_group_topology_description_update": "it is new in Apache Kafka 4.4"}),
}
"""What Apache Kafka does not serve to these clients."""

NOT_ANSWERED = {
    ("describe_user_scram_credentials", 0): "for all users: Apache Kafka fails at making the answer, and sends none",
}
"""Requests, by their places in `requests_of`, that Apache Kafka does not answer if they are refused."""

NEXT = "the next row"
NOT_REQUESTED = -(2**31)
BESIDE = "for its configurations in the response"
KINDS = {"TOPIC": handlers.TOPIC, "GROUP": handlers.GROUP, "TRANSACTIONAL_ID": handlers.ID, "DELEGATION_TOKEN": OWNER}
"""By resource type, the name that the requests use for a resource of it, and that a response may have to hide."""


def skip_what_is_not_served(api: str) -> None:
    if brokers.IS_KAFKA and api in NOT_SERVED:
        pytest.skip(NOT_SERVED[api])


def answered_requests(api: str) -> list[Request]:
    """Returns the requests of that API that this broker answers if it refuses them."""
    return [
        it for number, it in enumerate(requests_of(api)) if not (brokers.IS_KAFKA and (api, number) in NOT_ANSWERED)
    ]


@attrs.frozen
class Rights:
    """A case: the permissions that a user lacks (that of `row` decides), or those that it has."""

    number: int
    api: str
    permissions: tuple[Permission, ...]
    row: Row | None = None

    @property
    def id(self) -> str:
        what = "-".join(self.row.permission) if self.row is not None else str(len(self.permissions))
        return f"{self.api}-{what}"


@cache
def _page() -> list[Row]:
    """Reads the page once: each process of a run does so before its first test."""
    return list(rows())


def _rows_of(api: str) -> list[Row]:
    name = page_name(api)
    return [it for it in _page() if it.api == name and it.permission != ("", "")]


def _lacking() -> Iterator[tuple[str, tuple[Permission, ...], Row]]:
    """Yields a case for each row. A row that only counts if the one above it denies is reached by lacking both."""
    for api in handlers.REQUESTS:
        above: list[Permission] = []
        for row in _rows_of(api):
            above.append(row.permission)
            if not row.denied.startswith(NEXT):
                yield api, tuple(above), row
                above = [it.permission for it in _rows_of(api) if it.denied == "the next rows"]


def _having() -> Iterator[tuple[str, tuple[Permission, ...]]]:
    """Yields all rights; and if one will do instead of others, each without the other."""
    for api in handlers.REQUESTS:
        every = [it.permission for it in _rows_of(api)]
        yield api, tuple(every)
        instead = [it.permission for it in _rows_of(api) if it.denied.startswith(NEXT)]
        if instead:
            yield api, tuple(it for it in every if it not in instead)


DENIED = [Rights(number, *it) for number, it in enumerate(_lacking())]
ALLOWED = [Rights(len(DENIED) + number, *it) for number, it in enumerate(_having())]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    cases = DENIED + ALLOWED
    with denying_broker(len(cases)) as running:
        running.create_topics(it.number for it in cases)
        running.create_acls(
            [acl for it in cases for acl in acls(it.number, it.api, it.permissions, deny=it.row is not None)]
        )
        yield running


# The state before the request: the topic, unless something else is given.
PREPARED: dict[str, Callable[[Case], object]] = {
    **dict.fromkeys(
        ("offset_fetch", "list_groups", "delete_groups", "offset_delete", "describe_groups"), Case.commit_offset
    ),
    "delete_records": Case.produce,
    **dict.fromkeys(
        ("add_offsets_to_txn", "end_txn", "txn_offset_commit", "describe_transactions", "list_transactions"),
        Case.begin_transaction,
    ),
    "add_partitions_to_txn": Case.begin_producer,
    "delete_acls": Case.create_acl,
    "describe_delegation_token": Case.create_token,
    **{
        f"{kind}_group_describe": lambda case, kind=kind: case.join(kind)  # type: ignore[misc]
        for kind in ("consumer", "share", "streams")
    },
    "describe_share_group_offsets": lambda case: case.join("share"),
    "alter_share_group_offsets": Case.leave_a_share_group,
    "delete_share_group_offsets": Case.leave_a_share_group,
}


def prepared(scene: Scene, rights: Rights) -> Case:
    case = Case(scene, rights.number)
    if (prepare := PREPARED.get(rights.api)) is not None:
        prepare(case)
    return case


# What is seen to change when it is not refused: so it would be seen, too, if a refused request did something.
CHANGES = {
    "produce": {"last offset"},
    "metadata": {"topics"},
    "offset_commit": {"groups", "offsets"},
    "join_group": {"groups"},
    "create_topics": {"topics"},
    "delete_topics": {"topics"},
    "delete_records": {"first offset"},
    "create_partitions": {"topics"},
    "init_producer_id": {"transaction"},
    "add_partitions_to_txn": {"transaction"},
    "add_offsets_to_txn": {"transaction"},
    "end_txn": {"transaction"},
    "write_txn_markers": {"last offset"},
    "txn_offset_commit": {"groups", "transaction"},
    "create_acls": {"ACLs"},
    "delete_acls": {"ACLs"},
    "alter_configs": {"configs"},
    "incremental_alter_configs": {"configs"},
    "delete_groups": {"groups", "offsets"},
    "offset_delete": {"offsets"},
    "alter_client_quotas": {"quotas"},
    "create_delegation_token": {"tokens"},
    "update_features": {"features"},
    "alter_user_scram_credentials": {"users"},
    "consumer_group_heartbeat": {"groups"},
    "share_group_heartbeat": {"groups", "share offsets"},
    "streams_group_heartbeat": {"groups", "topics"},
    "alter_share_group_offsets": {"share offsets"},
    "delete_share_group_offsets": {"share offsets"},
}


@pytest.mark.parametrize("rights", DENIED, ids=lambda it: it.id)
def test_a_user_without_a_right_is_refused_and_nothing_is_done_or_revealed(scene: Scene, rights: Rights) -> None:
    row = rights.row
    assert row is not None
    skip_what_is_not_served(rights.api)
    case = prepared(scene, rights)
    hidden = [case.name(name).encode() for kind, name in KINDS.items() if ("DESCRIBE", kind) in rights.permissions]
    if ("DESCRIBE", "TOPIC") in rights.permissions:
        hidden.append(case.topic_id)
    found: set[str] = set()
    left_out = no_operations = False
    with scene.connection_of(rights.number) as client:
        for make, version in answered_requests(rights.api):
            request = case.request(make)
            before = case.seen()
            request_version = scene.version(rights.api, version)
            sent, answer, decoded = scene.send(client, request, request_version)
            codes = refusals(decoded)
            found |= codes
            if row.denied == "no operations":
                assert decoded.cluster_authorized_operations in (0, NOT_REQUESTED)
                no_operations = no_operations or decoded.cluster_authorized_operations == 0
            if codes and row.when != BESIDE:
                assert case.changed(before) == set()
            elif not codes and rights.api in ("alter_configs", "incremental_alter_configs"):
                # It may change this one, which Apache Kafka shows a moment later.
                eventually(partial(case.changed, before), "the change is seen", within_s=5)
            if row.permission[0] == "CREATE":
                assert case.seen()["topics"] == before["topics"]
            if rights.api == "delete_topics" and not codes:
                continue  # both brokers return the name of what was deleted by its id
            for secret in hidden:
                if secret not in sent:
                    assert secret not in answer
                    left_out = left_out or secret in scene.send(scene.admin, request, request_version)[1]
    assert found == ({row.code} if row.code else set())
    if "left out" in row.denied and "regular expression" not in row.denied:
        assert left_out, "another user gets the name"
    assert no_operations == (row.denied == "no operations")


@pytest.mark.parametrize("rights", ALLOWED, ids=lambda it: it.id)
def test_who_has_the_rights_that_the_page_names_is_not_refused(scene: Scene, rights: Rights) -> None:
    skip_what_is_not_served(rights.api)
    case = prepared(scene, rights)
    before = case.seen()
    with scene.connection_of(rights.number) as client:
        for make, version in requests_of(rights.api):
            _, _, decoded = scene.send(client, case.request(make), scene.version(rights.api, version))
            assert refusals(decoded) == set(), decoded
    expected = CHANGES.get(rights.api, set())
    eventually(lambda: expected <= case.changed(before), f"it has changed {expected}", within_s=5)
