"""CreateAcls, DescribeAcls and DeleteAcls, and the effect of their changes on the broker.

What is refused, and how, was measured at Apache Kafka 4.3.1; compat_tests/test_acls.py sends requests to both.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import create_acls, delete_acls, describe_acls, fetch, metadata
from kwire_protocol.messages.create_acls import AclCreation
from kwire_protocol.messages.delete_acls import DeleteAclsFilter
from kwire_protocol.wire import Reader, Writer
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.config.tables.access import STANDARD_AUTHORIZER
from kwire.handlers.apis import APIS
from kwire.handlers.context import CloseConnection, Context
from kwire.metadata.controller.access import acls as decisions
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.node.broker import Broker
from kwire.runtime.clock import SystemClock
from kwire.security.authorizer import CLUSTER_NAME, AllowAll, Operation, ResourceType
from kwire.security.principal import Principal, Requester
from testkit.basics.futures import at_once
from testkit.cluster.connected_cluster import ConnectedCluster

E = ErrorCode
ADMIN = Requester(Principal("User", "admin"), "10.0.0.1")
ALICE = Requester(Principal("User", "alice"), "10.0.0.2")
SETTINGS = (f"authorizer.class.name={STANDARD_AUTHORIZER}", "super.users=User:admin;User:ANONYMOUS")
READ, WRITE, DESCRIBE, ALTER = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER
ANY = 1
TOPIC = ResourceType.TOPIC


def opened(disk: MemoryDisk, *settings: str) -> Broker:
    return Broker.open(load_config(settings=[*SETTINGS, *settings]), disk, SystemClock())


@pytest.fixture
def broker() -> Iterator[Broker]:
    it = opened(MemoryDisk())
    at_once(it.metadata.change(auto_create_topic, "t"))
    yield it
    it.close()


def send(broker: Broker, request: Any, requester: Requester = ADMIN, *, version: int | None = None) -> Any:
    api = APIS[request.api_key]
    api_version = max(api.versions) if version is None else version
    context = Context("10.0.0.2", "127.0.0.1", 9092, api_key=api.key, api_version=api_version, requester=requester)
    handle = api.handler(broker)
    answer = handle(request, context)
    return at_once(answer) if isinstance(answer, Coroutine) else answer


def creation(**other: Any) -> AclCreation:
    """Makes an ACL by which alice may read t, unless something else is given."""
    return AclCreation(2, "t", 3, "User:alice", "*", READ, 3).replace(**other)


def create(broker: Broker, *creations: AclCreation, requester: Requester = ADMIN) -> list[tuple[int, str | None]]:
    response = send(broker, create_acls.CreateAclsRequest(list(creations)), requester)
    return [(it.error_code, it.error_message) for it in response.results]


def delete(broker: Broker, *filters: DeleteAclsFilter, requester: Requester = ADMIN) -> list[Any]:
    results: list[Any] = send(broker, delete_acls.DeleteAclsRequest(list(filters)), requester).filter_results
    return results


def wanted(**other: Any) -> DeleteAclsFilter:
    """Makes a filter of everything, unless something else is given."""
    return DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY).replace(**other)


def described(broker: Broker, *, requester: Requester = ADMIN, **other: Any) -> Any:
    everything = describe_acls.DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    return send(broker, everything.replace(**other), requester)


def listed(broker: Broker) -> set[tuple[str, str, int]]:
    response = described(broker)
    assert response.error_code == 0
    return {(it.resource_name, each.principal, each.operation) for it in response.resources for each in it.acls}


def test_what_was_created_is_in_force_when_that_is_answered(broker: Broker) -> None:
    may_read = (ALICE, READ, TOPIC, "t")
    assert not broker.authorization.authorizer.allows(*may_read)
    assert create(broker, creation()) == [(0, "")]
    assert broker.authorization.authorizer.allows(*may_read)
    assert listed(broker) == {("t", "User:alice", READ)}
    [result] = delete(broker, wanted())
    assert (result.error_code, result.error_message) == (0, None)
    [gone] = result.matching_acls
    assert (gone.error_code, gone.error_message) == (0, None)
    assert (gone.resource_type, gone.resource_name, gone.pattern_type) == (2, "t", 3)
    assert (gone.principal, gone.host, gone.operation, gone.permission_type) == ("User:alice", "*", READ, 3)
    assert not broker.authorization.authorizer.allows(*may_read)
    assert listed(broker) == set()


def test_what_exists_is_not_created_again(broker: Broker) -> None:
    assert create(broker, creation(), creation()) == [(0, "")] * 2
    assert create(broker, creation()) == [(0, "")]
    assert len(broker.metadata.image.access.acls) == 1


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 77}, "Invalid patternType UNKNOWN"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 9}, "Invalid permissionType UNKNOWN"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "alice"}, "Could not parse principal from 'alice' (no colon is present separating "),
        ({"principal": ""}, "Could not parse principal from '' (no colon is present separating "),
    ],
)
def test_an_acl_that_means_nothing_is_refused_alone(broker: Broker, other: dict[str, Any], why: str) -> None:
    answers = create(broker, creation(**other), creation(resource_name="fine"))
    assert [code for code, _ in answers] == [E.INVALID_REQUEST, 0]
    assert (answers[0][1] or "").startswith(why)
    assert listed(broker) == {("fine", "User:alice", READ)}


@pytest.mark.parametrize(
    "other",
    [
        {"operation": Operation.CLUSTER_ACTION},
        {"host": ""},
        {"host": "not a host"},
        {"principal": ":"},
        {"principal": "Group:x"},
        {"resource_name": "x" * 300},
        {"resource_type": 4, "resource_name": CLUSTER_NAME},
        {"resource_type": 4, "resource_name": CLUSTER_NAME, "resource_pattern_type": 4},
        {"resource_type": 6, "resource_name": "token"},
        {"resource_type": 7, "resource_name": "User:x", "operation": Operation.CREATE_TOKENS},
        {"operation": 2},
    ],
)
def test_an_acl_that_is_of_no_use_is_none_of_kafkas_business(broker: Broker, other: dict[str, Any]) -> None:
    assert create(broker, creation(**other)) == [(0, "")]
    assert len(broker.metadata.image.access.acls) == 1


@pytest.mark.parametrize(
    "other",
    [{"resource_type": ANY}, {"operation": ANY}, {"permission_type": ANY}]
    + [{"resource_pattern_type": it} for it in (ANY, 2)],
)
def test_an_acl_of_a_filters_values_spoils_the_whole_request(broker: Broker, other: dict[str, Any]) -> None:
    answers = create(broker, creation(), creation(**other))
    assert [code for code, _ in answers] == [E.UNKNOWN_SERVER_ERROR] * 2
    assert listed(broker) == set()


@pytest.mark.parametrize(
    ("in_creation", "in_filter"),
    [
        ("resource_type", "resource_type_filter"),
        ("resource_pattern_type", "pattern_type_filter"),
        ("operation", "operation"),
        ("permission_type", "permission_type"),
    ],
)
def test_what_is_explicitly_unknown_closes_the_connection(broker: Broker, in_creation: str, in_filter: str) -> None:
    with pytest.raises(CloseConnection):
        create(broker, creation(**{in_creation: 0}))
    with pytest.raises(CloseConnection):
        delete(broker, wanted(**{in_filter: 0}))
    with pytest.raises(CloseConnection):
        described(broker, requester=ADMIN, **{in_filter: 0})


def test_a_filter_deletes_what_it_matches_and_returns_it_even_if_another_does_too(broker: Broker) -> None:
    create(broker, creation(), creation(resource_name="u"), creation(resource_name="v", operation=WRITE))
    results = delete(
        broker,
        wanted(operation=READ),
        wanted(operation=99),
        wanted(pattern_type_filter=99),
        wanted(resource_name_filter="u"),
        wanted(resource_name_filter="none"),
    )
    assert [it.error_code for it in results] == [0, E.INVALID_REQUEST, E.INVALID_REQUEST, 0, 0]
    assert [it.error_message for it in results] == [None, "Unknown entryFilter.", "Unknown patternFilter.", None, None]
    names = [[each.resource_name for each in it.matching_acls] for it in results]
    assert names == [["t", "u"], [], [], ["u"], []]
    assert listed(broker) == {("v", "User:alice", WRITE)}


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({}, ["t", "ta", "t", "*"]),
        ({"resource_name_filter": "t"}, ["t", "t"]),
        ({"resource_name_filter": "ta", "pattern_type_filter": 2}, ["ta", "t", "*"]),
        ({"pattern_type_filter": 4}, ["t"]),
        ({"principal_filter": "User:alice"}, ["t", "ta", "t"]),
        ({"principal_filter": "User:alice", "host_filter": "h"}, ["ta"]),
        ({"resource_type_filter": 99}, []),
        ({"permission_type": 99}, []),
    ],
)
def test_a_filter_finds_the_same_whether_it_describes_or_deletes(
    broker: Broker, other: dict[str, Any], names: list[str]
) -> None:
    create(
        broker,
        creation(),
        creation(resource_name="ta", host="h"),
        creation(resource_pattern_type=4),
        creation(resource_name="*", principal="User:bob"),
    )
    found = described(broker, **other)
    assert found.error_code == 0
    assert [it.resource_name for it in found.resources for _ in it.acls] == names
    [deleted] = delete(broker, wanted(**other))
    assert [it.resource_name for it in deleted.matching_acls] == names


def test_too_many_acls_at_once_are_refused(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MAX_RECORDS_PER_REQUEST", 3)
    some = [creation(resource_name=f"t{number}") for number in range(5)]
    answers = create(broker, *some[:4])
    assert {code for code, _ in answers} == {E.POLICY_VIOLATION}
    assert (answers[0][1] or "").startswith("Unable to perform excessively large batch operation")
    assert listed(broker) == set()
    assert {code for code, _ in create(broker, *some[:3])} == {0}
    assert {code for code, _ in create(broker, *some[:4])} == {0}, "only one of them is new"
    results = delete(broker, wanted(operation=WRITE), wanted())
    assert [it.error_code for it in results] == [E.INVALID_REQUEST] * 2
    assert len(listed(broker)) == 4
    monkeypatch.setattr(decisions, "MAX_RECORDS_PER_REQUEST", 4)
    monkeypatch.setattr(decisions, "MAX_DELETED_ACLS", 11)
    assert {it.error_code for it in delete(broker, *[wanted()] * 3)} == {E.INVALID_REQUEST}
    assert {it.error_code for it in delete(broker, *[wanted()] * 2)} == {0}


def test_who_may_not_alter_the_cluster_may_not_change_acls(broker: Broker) -> None:
    create(broker, creation())
    assert [it[0] for it in create(broker, creation(), requester=ALICE)] == [E.CLUSTER_AUTHORIZATION_FAILED]
    assert [it.error_code for it in delete(broker, wanted(), requester=ALICE)] == [E.CLUSTER_AUTHORIZATION_FAILED]
    assert described(broker, requester=ALICE).error_code == E.CLUSTER_AUTHORIZATION_FAILED
    create(broker, creation(resource_type=4, resource_name=CLUSTER_NAME, operation=ALTER))
    assert described(broker, requester=ALICE).error_code == 0, "who may alter may describe"
    assert create(broker, creation(resource_name="u"), requester=ALICE) == [(0, "")]


def test_without_an_authorizer_there_are_no_acls() -> None:
    it = Broker.open(load_config(), MemoryDisk(), SystemClock())
    assert isinstance(it.authorization.authorizer, AllowAll)
    assert [code for code, _ in create(it, creation())] == [E.SECURITY_DISABLED]
    assert [each.error_code for each in delete(it, wanted())] == [E.SECURITY_DISABLED]
    assert described(it).error_code == E.SECURITY_DISABLED
    it.close()


@pytest.mark.parametrize("settings", [(), ("metadata.log.max.record.bytes.between.snapshots=1",)])
def test_a_restart_keeps_the_acls(settings: tuple[str, ...]) -> None:
    disk = MemoryDisk()
    before = opened(disk, *settings)
    create(before, creation(), creation(operation=WRITE), creation(resource_name="u"))
    delete(before, wanted(operation=WRITE))
    before.close()
    after = opened(disk, *settings)
    assert listed(after) == {("t", "User:alice", READ), ("u", "User:alice", READ)}
    assert after.authorization.authorizer.allows(ALICE, READ, TOPIC, "t")
    assert not after.authorization.authorizer.allows(ALICE, WRITE, TOPIC, "t")
    after.close()


def test_everybody_may_use_what_has_no_acls_if_that_is_configured() -> None:
    it = opened(MemoryDisk(), "allow.everyone.if.no.acl.found=true")
    assert it.authorization.authorizer.allows(ALICE, READ, TOPIC, "t")
    create(it, creation(principal="User:bob"))
    assert not it.authorization.authorizer.allows(ALICE, READ, TOPIC, "t")
    it.close()


def test_a_remembered_answer_about_topics_does_not_outlive_a_permission(broker: Broker) -> None:
    def topics() -> list[str | None]:
        writer, version = Writer(), max(APIS[3].versions)
        send(broker, metadata.MetadataRequest(None), ALICE).write(writer, version)
        return [it.name for it in metadata.MetadataResponse.read(Reader(writer.getvalue()), version).topics]

    assert topics() == []
    create(broker, creation())
    assert topics() == topics() == ["t"]
    delete(broker, wanted())
    assert topics() == []


def test_an_answer_that_is_made_while_an_acl_is_applied_is_not_remembered_for_later(broker: Broker) -> None:
    """The image has the record, and the authorizer does not go by it yet."""
    follow = broker.metadata.follow
    seen: list[int] = []

    async def describe_meanwhile(changes: Any) -> None:
        seen.append(broker.metadata.image.epoch)
        await follow(changes)

    broker.metadata.follow = describe_meanwhile
    create(broker, creation())
    assert broker.metadata.image.epoch > seen[0]


def test_a_session_hears_of_permissions_that_change(broker: Broker) -> None:
    topic = broker.metadata.image.topics["t"]
    create(broker, creation())
    wants = fetch.FetchTopic("", topic.topic_id, [fetch.FetchPartition(0, partition_max_bytes=1000)])
    first = send(broker, fetch.FetchRequest(session_id=0, session_epoch=0, max_bytes=1000, topics=[wants]), ALICE)
    assert (first.error_code, first.responses[0].partitions[0].error_code) == (0, 0)

    def again(epoch: int) -> list[int]:
        request = fetch.FetchRequest(session_id=first.session_id, session_epoch=epoch, max_bytes=1000)
        response = send(broker, request, ALICE)
        assert response.error_code == 0
        return [each.error_code for it in response.responses for each in it.partitions]

    assert again(1) == []
    [partition] = [it for it in broker.partitions if it.topic == "t"]
    assert len(partition.waiters) == 1, "it rests"
    delete(broker, wanted())
    assert again(2) == again(3) == [E.TOPIC_AUTHORIZATION_FAILED]
    create(broker, creation())
    assert again(4) == [0]
    assert again(5) == []


def test_every_node_of_a_cluster_decides_and_goes_by_what_the_others_decided() -> None:
    cluster = ConnectedCluster()
    first, second = cluster.start(1, *SETTINGS), cluster.start(2, *SETTINGS)
    assert create(first, creation()) == [(0, "")]
    assert create(second, creation(), creation(resource_name="u")) == [(0, "")] * 2
    for it in (first, second):
        assert listed(it) == {("t", "User:alice", READ), ("u", "User:alice", READ)}
        assert it.authorization.authorizer.allows(ALICE, READ, TOPIC, "t")
        assert len(it.metadata.image.access.acls) == 2
    third = cluster.start(3, *SETTINGS)
    assert third.authorization.authorizer.allows(ALICE, READ, TOPIC, "u")
    [deleted] = delete(third, wanted())
    assert len(deleted.matching_acls) == 2
    for it in cluster.brokers.values():
        assert not it.authorization.authorizer.allows(ALICE, READ, TOPIC, "u")
        it.close()
