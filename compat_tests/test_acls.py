"""ACLs: Kafka's tool and the clients change them, the broker applies them, and wrong ones are refused alike.

On a plaintext listener every client is User:ANONYMOUS. So that a test may both change ACLs and be refused something,
every user may do everything to what has no ACL, and there is no super user. No test makes an ACL of the cluster that
takes from us what we need, so whoever may create or delete topics in the cluster may do so with each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kwire_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.describe_acls import DescribeAclsRequest
from kwire_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import NULL_UUID, Uuid

from testkit.basics.waiting import eventually
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.raw.client import ConnectionClosed, RawClient
from testkit.servers import brokers
from testkit.servers.brokers import RestartableBroker

E = ErrorCode
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANY, TOPIC, GROUP, CLUSTER = 1, 2, 3, 4
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, IDEMPOTENT_WRITE = 2, 3, 4, 6, 7, 8, 9, 12
DENY, ALLOW = 2, 3
ME = "User:ANONYMOUS"

pytestmark = pytest.mark.skipif(
    brokers.IS_KAFKA and brokers.IS_CLUSTER,
    reason="Apache Kafka's controllers elect no leader among them unless they are super users, and so would we be",
)

BATCH = bytes(build_batch([Record(value=b"v")]))


@pytest.fixture(scope="module")
def guarded() -> Iterator[RestartableBroker]:
    settings = {"authorizer_class_name": AUTHORIZER, "allow_everyone_if_no_acl_found": "true"}
    with brokers.restartable_broker(**settings) as running:
        yield running


@pytest.fixture
def client(guarded: RestartableBroker) -> Iterator[RawClient]:
    with RawClient(guarded.bootstrap) as connected:
        yield connected


@pytest.fixture
def at(guarded: RestartableBroker) -> tuple[str, str]:
    return ("--bootstrap-server", guarded.bootstrap)


@pytest.fixture
def topic(client: RawClient, unique: Callable[[str], str]) -> str:
    name = unique("topic")
    on_the_first = CreatableTopic(name, -1, -1, [CreatableReplicaAssignment(0, [brokers.NODES[0]])])
    created = client.call(CreateTopicsRequest([on_the_first], 10_000), 7)
    assert [it.error_code for it in created.topics] == [0]
    eventually(lambda: describe_topic(client, name).error_code == 0, "the topic is known")
    return name


def describe_topic(client: RawClient, name: str) -> Any:
    return client.call(MetadataRequest([MetadataRequestTopic(NULL_UUID, name)], False), 12).topics[0]


def binding(**other: Any) -> AclCreation:
    """Returns an ACL of another user, unless something else is given."""
    return AclCreation(TOPIC, "t", LITERAL, "User:other", "*", READ, ALLOW).replace(**other)


def create(client: RawClient, *acls: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
    results = client.call(CreateAclsRequest(list(acls)), version).results
    return [(it.error_code, it.error_message) for it in results]


def grant(client: RawClient, *acls: AclCreation) -> None:
    """Creates ACLs, and waits until the broker applies them: Apache Kafka's controller answers a little earlier."""
    assert {code for code, _ in create(client, *acls)} == {0}

    def are_described() -> bool:
        return all(
            describe(
                client,
                resource_type_filter=it.resource_type,
                resource_name_filter=it.resource_name,
                pattern_type_filter=it.resource_pattern_type,
                principal_filter=it.principal,
                operation=it.operation,
                permission_type=it.permission_type,
            )
            for it in acls
        )

    eventually(are_described, "the ACLs are described")


def wanted(**other: Any) -> DeleteAclsFilter:
    """Returns a filter of everything, unless something else is given."""
    return DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY).replace(**other)


def delete(client: RawClient, *filters: DeleteAclsFilter) -> list[tuple[int, str | None, list[str]]]:
    results = client.call(DeleteAclsRequest(list(filters)), 3).filter_results
    return [(it.error_code, it.error_message, sorted(acl.resource_name for acl in it.matching_acls)) for it in results]


def revoke(client: RawClient, name: str) -> None:
    """Deletes all ACLs of that name, and waits until the broker no longer describes them."""
    assert delete(client, wanted(resource_name_filter=name))[0][0] == 0
    eventually(lambda: not describe(client, resource_name_filter=name), "the ACLs are gone")


def describe(client: RawClient, version: int = 3, **other: Any) -> list[tuple[int, str, int, str, str, int, int]]:
    request = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY).replace(**other)
    response = client.call(request, version)
    assert (response.error_code, response.error_message) == (0, "")
    return sorted(
        (
            it.resource_type,
            it.resource_name,
            it.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for it in response.resources
        for acl in it.acls
    )


# -- what is created, refused, described and deleted


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_acl_is_created_once_and_described(client: RawClient, unique: Callable[[str], str], version: int) -> None:
    name = unique("t")
    acl = binding(resource_name=name)
    assert create(client, acl, acl, version=version) == [(0, "")] * 2
    assert create(client, acl, version=version) == [(0, "")]
    expected = [(TOPIC, name, LITERAL, "User:other", "*", READ, ALLOW)]
    eventually(lambda: describe(client, version, resource_name_filter=name) == expected, "it is described")
    assert delete(client, wanted(resource_name_filter=name)) == [(0, None, [name])]


REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"resource_type": 99}, E.INVALID_REQUEST),
    ({"resource_type": -3}, E.INVALID_REQUEST),
    ({"resource_pattern_type": 77}, E.INVALID_REQUEST),
    ({"operation": 99}, E.INVALID_REQUEST),
    ({"permission_type": 9}, E.INVALID_REQUEST),
    ({"resource_name": ""}, E.INVALID_REQUEST),
    ({"resource_type": CLUSTER, "resource_name": "x"}, E.INVALID_REQUEST),
    ({"resource_type": CLUSTER, "resource_name": "kafka", "resource_pattern_type": PREFIXED}, E.INVALID_REQUEST),
    ({"resource_type": 99, "resource_name": ""}, E.INVALID_REQUEST),
    ({"principal": "a"}, E.INVALID_REQUEST),
    ({"principal": ""}, E.INVALID_REQUEST),
    ({"resource_type": ANY}, E.UNKNOWN_SERVER_ERROR),
    ({"resource_pattern_type": ANY}, E.UNKNOWN_SERVER_ERROR),
    ({"resource_pattern_type": MATCH}, E.UNKNOWN_SERVER_ERROR),
    ({"operation": ANY}, E.UNKNOWN_SERVER_ERROR),
    ({"permission_type": ANY}, E.UNKNOWN_SERVER_ERROR),
]


@pytest.mark.parametrize(("other", "code"), REFUSED, ids=str)
def test_an_acl_that_means_nothing_is_refused(
    client: RawClient, unique: Callable[[str], str], other: dict[str, Any], code: int
) -> None:
    fine = unique("fine")
    before = describe(client)
    answers = [it[0] for it in create(client, binding(**other), binding(resource_name=fine))]
    spoils_all = code == E.UNKNOWN_SERVER_ERROR
    assert answers == [code, code if spoils_all else 0]
    expected = 0 if spoils_all else 1
    eventually(lambda: len(describe(client, resource_name_filter=fine)) == expected, "the other one is described")
    assert len(describe(client)) == len(before) + expected
    revoke(client, fine)


@pytest.mark.parametrize(
    "other",
    [
        {"operation": 9},
        {"operation": ALL},
        {"host": ""},
        {"host": "not a host"},
        {"principal": ":"},
        {"principal": "Group:x"},
        {"resource_type": 5, "operation": 15},
        {"resource_type": 6},
        {"resource_type": 7, "operation": 13},
    ],
    ids=str,
)
def test_an_acl_that_is_of_no_use_is_created(
    client: RawClient, unique: Callable[[str], str], other: dict[str, Any]
) -> None:
    acl = binding(**{"resource_name": unique("t"), **other})
    grant(client, acl)
    assert delete(client, wanted(resource_name_filter=acl.resource_name)) == [(0, None, [acl.resource_name])]


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_a_creation_with_what_is_unknown_closes_the_connection(client: RawClient, field: str) -> None:
    with pytest.raises(ConnectionClosed):
        create(client, binding(**{field: 0}))


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_a_filter_with_what_is_unknown_closes_the_connection(guarded: RestartableBroker, field: str) -> None:
    with RawClient(guarded.bootstrap) as client, pytest.raises(ConnectionClosed):
        delete(client, wanted(**{field: 0}))
    with RawClient(guarded.bootstrap) as client, pytest.raises(ConnectionClosed):
        describe(client, **{field: 0})


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_a_filter_with_a_number_that_means_nothing_finds_nothing_and_deletes_nothing(
    client: RawClient, unique: Callable[[str], str], field: str
) -> None:
    name = unique("t")
    grant(client, binding(resource_name=name))
    assert describe(client, **{field: 99}) == []
    which = "patternFilter" if field in ("resource_type_filter", "pattern_type_filter") else "entryFilter"
    assert delete(client, wanted(**{field: 99}), wanted(resource_name_filter=name)) == [
        (E.INVALID_REQUEST, f"Unknown {which}.", []),
        (0, None, [name]),
    ]


def test_filters_match_alike(client: RawClient, unique: Callable[[str], str]) -> None:
    name = unique("t")
    grant(
        client,
        binding(resource_name=name),
        binding(resource_name=name[:-1], resource_pattern_type=PREFIXED, operation=WRITE),
        binding(resource_name=name, resource_type=GROUP, principal="User:x", host="h"),
        binding(resource_name=f"{name}-longer", resource_pattern_type=PREFIXED),
        binding(resource_name=name[:-2]),
    )

    def found(**other: Any) -> list[tuple[int, str, int]]:
        return [it[:3] for it in describe(client, **other) if it[1].startswith(name[:-2])]

    of_topic, of_prefix, of_group = (TOPIC, name, LITERAL), (TOPIC, name[:-1], PREFIXED), (GROUP, name, LITERAL)
    assert len(found()) == 5
    assert found(resource_name_filter=name) == [of_topic, of_group]
    assert found(resource_name_filter=name, pattern_type_filter=LITERAL) == [of_topic, of_group]
    assert found(resource_name_filter=name, pattern_type_filter=PREFIXED) == []
    assert found(resource_name_filter=name, pattern_type_filter=MATCH) == [of_prefix, of_topic, of_group]
    assert found(resource_name_filter=name, host_filter="h") == [of_group]
    assert found(resource_name_filter=name, principal_filter="User:x", host_filter="*") == []
    assert found(operation=WRITE) == [of_prefix]
    assert found(operation=ALL) == []
    assert found(permission_type=DENY) == []
    assert (
        delete(client, wanted(resource_name_filter=name), wanted(resource_name_filter=name))
        == [(0, None, [name, name])] * 2
    )
    for gone in (name[:-1], name[:-2], f"{name}-longer"):
        revoke(client, gone)


# -- what they do


def test_an_acl_for_somebody_else_takes_a_topic_from_us_and_one_for_us_gives_it_back(
    client: RawClient, topic: str
) -> None:
    topic_id = describe_topic(client, topic).topic_id
    eventually(
        lambda: use(client, topic, topic_id) == dict.fromkeys(("produce", "fetch", "list offsets", "metadata"), 0),
        "the topic is led",
    )
    grant(client, binding(resource_name=topic))
    refused = E.TOPIC_AUTHORIZATION_FAILED
    assert use(client, topic, topic_id) == dict.fromkeys(("produce", "fetch", "list offsets", "metadata"), refused)
    grant(client, binding(resource_name=topic, principal=ME))
    assert use(client, topic, topic_id) == {"produce": refused, "fetch": 0, "list offsets": 0, "metadata": 0}
    grant(
        client, binding(resource_name=topic[:-1], resource_pattern_type=PREFIXED, principal="User:*", operation=WRITE)
    )
    assert use(client, topic, topic_id) == dict.fromkeys(("produce", "fetch", "list offsets", "metadata"), 0)
    grant(client, binding(resource_name=topic, principal=ME, operation=READ, permission_type=DENY, host="127.0.0.1"))
    assert use(client, topic, topic_id) == {"produce": 0, "fetch": refused, "list offsets": 0, "metadata": 0}
    revoke(client, topic)
    revoke(client, topic[:-1])
    assert use(client, topic, topic_id) == dict.fromkeys(("produce", "fetch", "list offsets", "metadata"), 0)


def use(client: RawClient, topic: str, topic_id: Uuid) -> dict[str, int]:
    """The error of each thing that may be done with a topic."""
    produced = client.call(
        ProduceRequest(None, 1, 10_000, [TopicProduceData(topic, topic_id, [PartitionProduceData(0, BATCH)])]), 13
    )
    fetched = client.call(
        FetchRequest(max_wait_ms=0, max_bytes=1000, topics=[FetchTopic("", topic_id, [FetchPartition(0)])]), 17
    )
    offsets = client.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, -1)])]), 7)
    return {
        "produce": produced.responses[0].partition_responses[0].error_code,
        "fetch": fetched.responses[0].partitions[0].error_code,
        "list offsets": offsets.topics[0].partitions[0].error_code,
        "metadata": describe_topic(client, topic).error_code,
    }


def test_a_fetch_that_is_denied_has_no_aborted_transactions(client: RawClient, topic: str) -> None:
    grant(client, binding(resource_name=topic))
    request = FetchRequest(max_wait_ms=0, max_bytes=1000, topics=[FetchTopic(topic, NULL_UUID, [FetchPartition(0)])])
    [denied] = client.call(request, 12).responses[0].partitions
    assert (denied.error_code, denied.aborted_transactions) == (E.TOPIC_AUTHORIZATION_FAILED, [])


def test_no_response_reveals_a_topic_to_a_client_that_may_not_see_it(client: RawClient, topic: str) -> None:
    there, none = topic, f"{topic}-none"
    grant(client, binding(resource_name=topic, resource_pattern_type=PREFIXED))
    for name in (there, none):
        metadata = describe_topic(client, name)
        assert (metadata.error_code, metadata.topic_id, metadata.partitions) == (
            E.TOPIC_AUTHORIZATION_FAILED,
            NULL_UUID,
            [],
        )
        [listed] = client.call(DescribeTopicPartitionsRequest([TopicRequest(name)], 10), 0).topics
        assert (listed.error_code, listed.topic_id, listed.partitions) == (E.TOPIC_AUTHORIZATION_FAILED, NULL_UUID, [])
        [grown] = client.call(CreatePartitionsRequest([CreatePartitionsTopic(name, 5)], 1000), 3).results
        assert grown.error_code == E.TOPIC_AUTHORIZATION_FAILED
        [cut] = client.call(
            DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)])], 1000), 2
        ).topics
        assert cut.partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    everything = client.call(MetadataRequest(None), 12).topics
    assert not {it.name for it in everything} & {there, none}
    revoke(client, topic)


def test_who_may_create_and_delete_topics_in_the_cluster_may_do_so_with_each(
    client: RawClient, unique: Callable[[str], str]
) -> None:
    name = unique("t")
    grant(client, binding(resource_name=name))
    [created] = client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 10_000), 7).topics
    assert (created.error_code, created.topic_config_error_code) == (0, E.TOPIC_AUTHORIZATION_FAILED)
    assert created.configs == []
    [deleted] = client.call(DeleteTopicsRequest([DeleteTopicState(name)], [], 10_000), 6).responses
    assert (deleted.name, deleted.error_code) == (name, 0)
    revoke(client, name)


def test_a_topic_that_may_not_be_created_is_not_created(client: RawClient, unique: Callable[[str], str]) -> None:
    """The first ACLs of the cluster end the default that every user may create and delete topics."""
    name, invalid = unique("t"), "not valid"
    needed = (ALTER, CLUSTER_ACTION, DESCRIBE, IDEMPOTENT_WRITE)  # what we and the node still use
    grant(
        client,
        *(binding(resource_type=CLUSTER, resource_name="kafka-cluster", principal=ME, operation=it) for it in needed),
        *(binding(resource_name=it, principal=ME, operation=DESCRIBE) for it in (name, invalid)),
        binding(resource_name=f"{name}-more"),
    )
    refused = E.TOPIC_AUTHORIZATION_FAILED
    [created] = client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 10_000), 7).topics
    assert (created.error_code, created.error_message) == (refused, "Authorization failed.")
    twice = client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)] * 2, 10_000), 7).topics
    assert [it.error_code for it in twice] == [E.INVALID_REQUEST]
    for topic_name in (name, invalid):
        [metadata] = client.call(MetadataRequest([MetadataRequestTopic(NULL_UUID, topic_name)], True), 12).topics
        assert metadata.error_code == refused
    for topic_name, code in ((name, E.UNKNOWN_TOPIC_OR_PARTITION), (f"{name}-more", refused)):
        [deleted] = client.call(DeleteTopicsRequest([DeleteTopicState(topic_name)], [], 10_000), 6).responses
        assert (deleted.name, deleted.topic_id, deleted.error_code) == (topic_name, NULL_UUID, code)
    twice = client.call(DeleteTopicsRequest([DeleteTopicState(name)] * 2, [], 10_000), 6).responses
    assert [it.error_code for it in twice] == [E.INVALID_REQUEST]
    for gone in ("kafka-cluster", name, invalid, f"{name}-more"):
        revoke(client, gone)


def test_authorized_operations_are_those_of_the_acls(client: RawClient, topic: str) -> None:
    grant(client, binding(resource_name=topic, principal=ME), binding(resource_name=topic, principal=ME, operation=10))
    request = MetadataRequest([MetadataRequestTopic(NULL_UUID, topic)], False, False, True)
    [metadata] = client.call(request, 12).topics
    assert metadata.topic_authorized_operations == 1 << READ | 1 << DESCRIBE | 1 << 10
    revoke(client, topic)


def test_a_group_and_a_transactional_id_are_guarded_too(client: RawClient, unique: Callable[[str], str]) -> None:
    name = unique("x")
    grant(client, binding(resource_type=GROUP, resource_name=name), binding(resource_type=5, resource_name=name))
    for key_type, refused in ((0, E.GROUP_AUTHORIZATION_FAILED), (1, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)):
        [found] = client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name]), 4).coordinators
        assert found.error_code == refused
    refused_id = client.call(InitProducerIdRequest(name, 60_000, -1, -1), 4)
    assert refused_id.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    eventually(
        lambda: client.call(InitProducerIdRequest(None, 60_000, -1, -1), 4).error_code == 0, "producer ids are given"
    )
    revoke(client, name)


def test_a_session_hears_of_permissions_that_change(client: RawClient, topic: str) -> None:
    topic_id = describe_topic(client, topic).topic_id

    def fetch(session_id: int, epoch: int, *topics: FetchTopic) -> Any:
        return client.call(
            FetchRequest(
                max_wait_ms=0, max_bytes=1000, session_id=session_id, session_epoch=epoch, topics=list(topics)
            ),
            17,
        )

    def begun() -> Any:
        return fetch(0, 0, FetchTopic("", topic_id, [FetchPartition(0)]))

    eventually(lambda: begun().responses[0].partitions[0].error_code == 0, "the topic is led")
    session_id = begun().session_id
    assert fetch(session_id, 1).responses == []
    grant(client, binding(resource_name=topic))
    [refused] = fetch(session_id, 2).responses
    assert refused.partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    revoke(client, topic)
    again = [it.error_code for each in fetch(session_id, 3).responses for it in each.partitions]
    assert again == [0]
    assert fetch(session_id, 4).responses == []


def test_acls_outlive_a_restart_in_records_that_kafkas_tool_reads(
    guarded: RestartableBroker, java: JavaHost, unique: Callable[[str], str]
) -> None:
    name = unique("t")
    with RawClient(guarded.bootstrap) as client:
        grant(client, binding(resource_name=name), binding(resource_name=name, operation=WRITE))
        before = describe(client)
    guarded.restart()
    with RawClient(guarded.bootstrap) as client:
        assert describe(client) == before
        revoke(client, name)
    log = guarded.metadata_dir / "__cluster_metadata-0" / "00000000000000000000.log"
    output = java.succeed(tools.DUMP_LOG, "--cluster-metadata-decoder", "--files", log).out
    fields = (
        f'"resourceType":{TOPIC},"resourceName":"{name}","patternType":{LITERAL},"principal":"User:other","host":"*"'
    )
    recorded = re.findall(
        rf'"type":"ACCESS_CONTROL_ENTRY_RECORD","version":0,"data":{{"id":"(.+?)",{re.escape(fields)}', output
    )
    removed = re.findall(r'"type":"REMOVE_ACCESS_CONTROL_ENTRY_RECORD","version":0,"data":{"id":"(.+?)"}', output)
    assert len(recorded) == 2
    assert set(recorded) <= set(removed)


# -- clients and tools


def test_confluents_admin_client_creates_describes_and_deletes_them(
    guarded: RestartableBroker, unique: Callable[[str], str]
) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})
    name = unique("t")
    entry = ("User:alice", "10.0.0.1", AclOperation.WRITE, AclPermissionType.DENY)
    acl = AclBinding(ResourceType.TOPIC, name, ResourcePatternType.PREFIXED, *entry)
    for future in admin.create_acls([acl]).values():
        assert future.result(30) is None
    by_name = AclBindingFilter(
        ResourceType.TOPIC,
        f"{name}-more",
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    eventually(lambda: admin.describe_acls(by_name).result(30) == [acl], "it is described")
    for future in admin.delete_acls([by_name]).values():
        assert future.result(30) == [acl]
    eventually(lambda: admin.describe_acls(by_name).result(30) == [], "it is gone")


def test_a_producer_without_permission_gets_an_error(guarded: RestartableBroker, client: RawClient, topic: str) -> None:
    grant(client, binding(resource_name=topic, principal=ME))  # it may read
    errors: list[ConfluentError] = []
    producer = Producer({"bootstrap.servers": guarded.bootstrap, "message.timeout.ms": 20_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert [it.code() for it in errors] == [ConfluentError.TOPIC_AUTHORIZATION_FAILED]
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})
    with pytest.raises(KafkaException) as raised:
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    assert raised.value.args[0].code() == ConfluentError.TOPIC_AUTHORIZATION_FAILED
    revoke(client, topic)


def test_kafkas_tool_adds_lists_and_removes_them(
    java: JavaHost, at: tuple[str, str], client: RawClient, unique: Callable[[str], str]
) -> None:
    topic, group = unique("topic"), unique("group")
    added = java.succeed(
        tools.ACLS, *at, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", topic, "--group", group
    )
    assert f"Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name={topic}, patternType=LITERAL)`" in (
        added.out
    )
    eventually(lambda: len(describe(client, resource_name_filter=topic)) == 2, "those of the topic are described")
    eventually(lambda: len(describe(client, resource_name_filter=group)) == 1, "that of the group is described")
    listed = java.succeed(tools.ACLS, *at, "--list", "--topic", topic).out
    entries = {it.strip() for it in listed.splitlines() if "principal=" in it}
    assert entries == {
        f"(principal=User:alice, host=*, operation={it}, permissionType=ALLOW)" for it in ("READ", "DESCRIBE")
    }
    java.succeed(
        tools.ACLS,
        *at,
        "--add",
        *("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Write"),
        *("--topic", topic, "--resource-pattern-type", "prefixed"),
    )
    eventually(lambda: len(describe(client, resource_name_filter=topic)) == 3, "it is described")
    matching = java.succeed(tools.ACLS, *at, "--list", "--topic", f"{topic}-x", "--resource-pattern-type", "match").out
    assert "(principal=User:bob, host=10.0.0.1, operation=WRITE, permissionType=DENY)" in matching
    assert "User:alice" not in matching
    of_bob = java.succeed(tools.ACLS, *at, "--list", "--principal", "User:bob").out
    assert f"name={topic}, patternType=PREFIXED" in of_bob
    java.succeed(tools.ACLS, *at, "--remove", "--force", "--topic", topic, "--resource-pattern-type", "any")
    java.succeed(tools.ACLS, *at, "--remove", "--force", "--group", group)
    for name in (topic, group):
        eventually(lambda: describe(client, resource_name_filter=name) == [], "they are gone")  # noqa: B023
