"""Every API's checks by the authorizer, and its answers to a client with no permissions, or some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import (
    add_partitions_to_txn,
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    describe_topic_partitions,
    init_producer_id,
    metadata,
    produce,
)
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import NULL_UUID, Reader

from kwire.handlers.apis import APIS
from kwire.handlers.context import Context
from kwire.metadata.controller.topics import topic_deletion
from kwire.node.broker import Broker
from kwire.runtime.futures import at_once
from kwire.security.authorizer import SUPPORTED, Operation, ResourceType
from kwire.security.principal import ANONYMOUS, Principal, Requester
from testkit.basics.error_codes import error_codes
from testkit.security.refusals import REFUSALS
from testkit.security.requests import (
    FOR_EVERYBODY,
    GROUP,
    ID,
    MALLORY,
    REQUESTS,
    TOPIC,
    Denier,
    DoesNotAnswerYet,
    P,
    batch,
    call,
    open_broker,
    topic_id,
    written,
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with open_broker() as opened:
        yield opened


def state(broker: Broker) -> object:
    """Returns what no refused request may change."""
    return broker.metadata.image.epoch, {(it.topic, it.index): it.log_end_offset for it in broker.partitions}


LISTS = {
    "metadata": "topics",
    "list_groups": "groups",
    "list_transactions": "transaction_states",
    "describe_delegation_token": "tokens",
    "describe_topic_partitions": "topics",
}
"""In requests for all resources, those without permission are left out."""


WRITES_AN_ID = "WRITE TRANSACTIONAL_ID"
READS_A_GROUP = "READ GROUP"
CONFIGURES = {"TOPIC", "CLUSTER", "GROUP"}
CHECKED: dict[str, set[str]] = {
    "produce": {"WRITE TOPIC", WRITES_AN_ID},
    "fetch": {"READ TOPIC", "CLUSTER_ACTION CLUSTER"},
    "list_offsets": {"DESCRIBE TOPIC"},
    "metadata": {"DESCRIBE TOPIC", "CREATE CLUSTER"},
    "offset_commit": {READS_A_GROUP, "READ TOPIC"},
    "offset_fetch": {"DESCRIBE GROUP", "DESCRIBE TOPIC"},
    "find_coordinator": {"DESCRIBE GROUP", "DESCRIBE TRANSACTIONAL_ID", "CLUSTER_ACTION CLUSTER"},
    "join_group": {READS_A_GROUP},
    "heartbeat": {READS_A_GROUP},
    "leave_group": {READS_A_GROUP},
    "sync_group": {READS_A_GROUP},
    "describe_groups": {f"{it} GROUP" for it in ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")},
    "list_groups": {"DESCRIBE CLUSTER"},
    "create_topics": {"CREATE CLUSTER", "DESCRIBE_CONFIGS TOPIC"},
    "delete_topics": {"DELETE CLUSTER"},
    "delete_records": {"DELETE TOPIC"},
    "init_producer_id": {WRITES_AN_ID, "WRITE TOPIC"},
    "offset_for_leader_epoch": {"CLUSTER_ACTION CLUSTER"},
    "add_partitions_to_txn": {"CLUSTER_ACTION CLUSTER"},
    "add_offsets_to_txn": {WRITES_AN_ID, READS_A_GROUP},
    "end_txn": {WRITES_AN_ID},
    "write_txn_markers": {"ALTER CLUSTER"},
    "txn_offset_commit": {WRITES_AN_ID, READS_A_GROUP, "READ TOPIC"},
    "describe_acls": {"DESCRIBE CLUSTER"},
    "create_acls": {"ALTER CLUSTER"},
    "delete_acls": {"ALTER CLUSTER"},
    "describe_configs": {f"DESCRIBE_CONFIGS {it}" for it in CONFIGURES},
    "alter_configs": {f"ALTER_CONFIGS {it}" for it in CONFIGURES},
    "incremental_alter_configs": {f"ALTER_CONFIGS {it}" for it in CONFIGURES},
    "alter_replica_log_dirs": {"ALTER CLUSTER"},
    "describe_log_dirs": {"DESCRIBE CLUSTER"},
    "create_partitions": {"ALTER TOPIC"},
    "delete_groups": {"DELETE GROUP"},
    "offset_delete": {"DELETE GROUP", "READ TOPIC"},
    "describe_client_quotas": {"DESCRIBE_CONFIGS CLUSTER"},
    "alter_client_quotas": {"ALTER_CONFIGS CLUSTER"},
    "create_delegation_token": {"CREATE_TOKENS USER"},
    "describe_delegation_token": {"DESCRIBE DELEGATION_TOKEN"},
    "update_features": {"ALTER CLUSTER"},
    "alter_partition_reassignments": {"ALTER CLUSTER"},
    "list_partition_reassignments": {"DESCRIBE CLUSTER"},
    "elect_leaders": {"ALTER CLUSTER"},
    "describe_user_scram_credentials": {"DESCRIBE CLUSTER"},
    "alter_user_scram_credentials": {"ALTER CLUSTER"},
    "unregister_broker": {"ALTER CLUSTER"},
    "alter_partition": {"CLUSTER_ACTION CLUSTER"},
    "describe_quorum": {"DESCRIBE CLUSTER"},
    "describe_cluster": {f"{it.name} CLUSTER" for it in SUPPORTED[ResourceType.CLUSTER]},
    "describe_producers": {"READ TOPIC"},
    "describe_transactions": {"DESCRIBE TRANSACTIONAL_ID"},
    "list_transactions": {"DESCRIBE TRANSACTIONAL_ID"},
    "describe_topic_partitions": {f"{it.name} TOPIC" for it in SUPPORTED[ResourceType.TOPIC]},
    "consumer_group_heartbeat": {READS_A_GROUP, "DESCRIBE TOPIC"},
    "consumer_group_describe": {"DESCRIBE GROUP"},
    "share_group_heartbeat": {READS_A_GROUP, "DESCRIBE TOPIC"},
    "share_group_describe": {"DESCRIBE GROUP"},
    "streams_group_heartbeat": {READS_A_GROUP, "DESCRIBE TOPIC", "CREATE CLUSTER"},
    "streams_group_describe": {"DESCRIBE GROUP"},
    "streams_group_topology_description_update": {READS_A_GROUP},
    "describe_share_group_offsets": {"DESCRIBE GROUP"},
    "alter_share_group_offsets": {"READ GROUP", "READ TOPIC"},
    "delete_share_group_offsets": {"DELETE GROUP", "READ TOPIC"},
    "share_fetch": {"READ GROUP", "READ TOPIC"},
    "share_acknowledge": {"READ GROUP", "READ TOPIC"},
    "initialize_share_group_state": {"CLUSTER_ACTION CLUSTER"},
    "read_share_group_state": {"CLUSTER_ACTION CLUSTER"},
    "write_share_group_state": {"CLUSTER_ACTION CLUSTER"},
    "delete_share_group_state": {"CLUSTER_ACTION CLUSTER"},
    "read_share_group_state_summary": {"CLUSTER_ACTION CLUSTER"},
}
"""The checks of an Apache Kafka for a client with all permissions (KafkaApis, ControllerApis)."""


@attrs.define
class Granter(Denier):
    """Permits everything, and records the checks."""

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.checked.append((requester, operation, resource_type, name))
        return True

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        self.checked.append((requester, operation, resource_type, ""))
        return True


@pytest.mark.parametrize("name", REQUESTS)
def test_the_authorizer_gets_the_checks_that_kafkas_gets(broker: Broker, name: str) -> None:
    broker.authorization.authorizer = granter = Granter()
    for request in [make(broker) for make in REQUESTS[name]]:
        with suppress(DoesNotAnswerYet):
            call(broker, name, request)
    assert {f"{it[1].name} {it[2].name}" for it in granter.checked} == CHECKED[name]
    assert {it[0] for it in granter.checked} == {MALLORY}


def test_what_a_transaction_has_of_topics_that_may_not_be_seen_is_left_out(broker: Broker) -> None:
    identity = call(broker, "init_producer_id", init_producer_id.InitProducerIdRequest(ID, 60_000))
    add = add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0])
    added = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[add],
    )
    visible_id = (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ID)
    may_write = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, ID)
    for granted, error in (
        (set(), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({may_write}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ({may_write, (Operation.WRITE, ResourceType.TOPIC, TOPIC)}, ErrorCode.NONE),
    ):
        broker.authorization.authorizer = Denier(granted)
        answer = call(broker, "add_partitions_to_txn", added, version=3)
        (partition,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert partition.partition_error_code == error
    for granted, topics in (
        ({visible_id}, []),
        ({visible_id, (Operation.DESCRIBE, ResourceType.TOPIC, TOPIC)}, [TOPIC]),
    ):
        broker.authorization.authorizer = Denier(granted)
        (described,) = call(
            broker, "describe_transactions", REQUESTS["describe_transactions"][0](broker)
        ).transaction_states
        assert [it.topic for it in described.topics] == topics


def test_a_transactional_id_is_needed_for_transactional_batches_only(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.WRITE, ResourceType.TOPIC, TOPIC)})

    def produced(*batches: bytes | memoryview) -> list[int]:
        data = [P(index, each) for index, each in enumerate(batches)]
        request = produce.ProduceRequest(ID, 1, 1000, [produce.TopicProduceData(TOPIC, topic_id(broker), data)])
        answers = call(broker, "produce", request).responses[0].partition_responses
        return [it.error_code for it in answers]

    transactional = bytes(build_batch([Record()], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0))
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produced(batch()) == [0]
    assert produced(b"no batch") == [ErrorCode.INVALID_RECORD]
    assert produced(batch(), transactional) == [refused, refused]


def test_whoever_may_delete_in_the_cluster_may_delete_any_topic(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.DELETE, ResourceType.CLUSTER, "kafka-cluster")})
    assert error_codes(call(broker, "delete_topics", REQUESTS["delete_topics"][0](broker))) == {0}


def test_a_refusal_shows_which_operation_it_needs_and_no_name(broker: Broker) -> None:
    def answer() -> str | None:
        request = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(None, topic_id(broker))])
        [response] = call(broker, "delete_topics", request).responses
        message: str | None = response.error_message
        return message

    broker.authorization.authorizer = Denier()
    assert answer() == "Topic authorization failed. It needs DELETE on the topic."
    quotas = call(broker, "describe_client_quotas", describe_client_quotas.DescribeClientQuotasRequest([]))
    assert quotas.error_message == "Cluster authorization failed. It needs DESCRIBE_CONFIGS on the cluster."


def test_whoever_may_see_topics_but_not_delete_them_learns_which_there_are(broker: Broker) -> None:
    identifier = topic_id(broker)

    def answer(name: str | None, topic_id: bytes = NULL_UUID) -> tuple[str | None, int]:
        request = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(name, topic_id)])
        [response] = call(broker, "delete_topics", request).responses
        return response.name, response.error_code

    refused, unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.authorization.authorizer = Denier()
    assert (answer(TOPIC), answer("none")) == ((TOPIC, refused), ("none", refused))
    assert answer(None, identifier) == (None, refused)
    assert answer(None, b"x" * 16) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.TOPIC, it) for it in (TOPIC, "none")})
    assert (answer(TOPIC), answer("none")) == ((TOPIC, refused), ("none", unknown))
    assert answer(None, identifier) == (TOPIC, refused)
    broker.authorization.authorizer = Denier({(Operation.DELETE, ResourceType.TOPIC, TOPIC)})
    assert answer(TOPIC) == (TOPIC, refused), "it may not be seen, so it does not exist for the client"
    assert answer(None, identifier) == (TOPIC, 0)


def test_what_is_named_twice_is_wrong_whoever_requests_it(broker: Broker) -> None:
    broker.authorization.authorizer = Denier()
    identifier = topic_id(broker)
    by_id, by_both = delete_topics.DeleteTopicState(None, identifier), delete_topics.DeleteTopicState(TOPIC, identifier)
    config = alter_configs.AlterConfigsResource(2, TOPIC, [])
    for name, request in (
        ("create_topics", create_topics.CreateTopicsRequest([create_topics.CreatableTopic("new", 1, 1)] * 2)),
        (
            "create_topics",
            create_topics.CreateTopicsRequest([create_topics.CreatableTopic("__cluster_metadata", 1, 1)]),
        ),
        (
            "create_partitions",
            create_partitions.CreatePartitionsRequest([create_partitions.CreatePartitionsTopic(TOPIC, 2)] * 2),
        ),
        ("delete_topics", delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(TOPIC)] * 2)),
        ("delete_topics", delete_topics.DeleteTopicsRequest([by_id, by_id])),
        ("delete_topics", delete_topics.DeleteTopicsRequest([by_both])),
        ("alter_configs", alter_configs.AlterConfigsRequest([config, config])),
    ):
        assert error_codes(call(broker, name, request)) - {0} <= {
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        }, name
        assert TOPIC in broker.metadata.image.topics


def test_a_topic_that_may_not_be_seen_is_not_called_internal_and_one_that_may_not_be_created_not_invalid(
    broker: Broker,
) -> None:
    def metadata_of(name: str) -> tuple[int, bool]:
        [topic] = call(broker, "metadata", metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)])).topics
        return topic.error_code, topic.is_internal

    broker.authorization.authorizer = Denier()
    assert metadata_of("__consumer_offsets") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.TOPIC, "not valid")})
    assert metadata_of("not valid") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)


def test_offsets_of_topics_that_may_not_be_seen_are_left_out(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.GROUP, GROUP)})
    everything, named = (call(broker, "offset_fetch", make(broker)).groups[0] for make in REQUESTS["offset_fetch"])
    assert everything.topics == []
    assert error_codes(named) == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_a_topic_may_be_created_by_whoever_may_create_that_topic(broker: Broker) -> None:
    may_create = (Operation.CREATE, ResourceType.TOPIC, "new")
    broker.authorization.authorizer = Denier({may_create, (Operation.DESCRIBE, ResourceType.TOPIC, "new")})
    (created,) = call(broker, "create_topics", REQUESTS["create_topics"][0](broker)).topics
    assert (created.error_code, created.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (created.configs, created.num_partitions, created.replication_factor) == ([], -1, -1)
    at_once(
        broker.metadata.change(
            topic_deletion.delete_topics, delete_topics.DeleteTopicsRequest(topic_names=["new"]), version=5
        )
    )
    assert "new" not in broker.metadata.image.topics
    call(broker, "metadata", REQUESTS["metadata"][2](broker))
    assert "new" in broker.metadata.image.topics


def test_metadata_creates_no_topic_for_a_client_that_may_not_create_it(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.TOPIC, "new")})
    (topic,) = call(broker, "metadata", REQUESTS["metadata"][2](broker)).topics
    assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "new" not in broker.metadata.image.topics


def test_metadata_creates_no_topic_for_a_client_that_may_not_describe_it(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")})
    (topic,) = call(broker, "metadata", REQUESTS["metadata"][2](broker)).topics
    assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "new" not in broker.metadata.image.topics


def test_every_api_has_requests_or_is_for_everybody() -> None:
    assert {api.name for api in APIS.values()} == set(REQUESTS) | set(FOR_EVERYBODY)


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, requests in REQUESTS.items() for number in range(len(requests))]
)
def test_who_may_do_nothing_is_answered_nothing(broker: Broker, name: str, number: int) -> None:
    broker.authorization.authorizer = denier = Denier()
    before = state(broker)
    response = call(broker, name, REQUESTS[name][number](broker))
    assert state(broker) == before
    assert {it[0] for it in denier.checked} <= {MALLORY}
    if name in FOR_EVERYBODY:
        assert response.cluster_authorized_operations == 0
        return
    codes = error_codes(response)
    assert codes - {0} <= REFUSALS
    if codes <= {0}:
        assert getattr(response, LISTS[name]) == []
    assert b"secret-value" not in repr(response).encode()


@pytest.mark.parametrize("name", ["produce", "fetch", "offset_commit", "txn_offset_commit", "offset_fetch"])
def test_older_versions_that_name_topics_are_refused_too(broker: Broker, name: str) -> None:
    broker.authorization.authorizer = Denier()
    version = {"produce": 12, "fetch": 12, "offset_commit": 9, "txn_offset_commit": 5, "offset_fetch": 9}[name]
    before = state(broker)
    response = call(broker, name, REQUESTS[name][0](broker), version=version)
    assert (error_codes(response) - {0}) <= REFUSALS
    assert error_codes(response) != {0}
    assert state(broker) == before


def test_whoever_may_not_see_a_topic_does_not_learn_whether_it_exists(broker: Broker) -> None:
    broker.authorization.authorizer = Denier()
    for name in ("list_offsets", "delete_records", "describe_producers"):
        answers = []
        for topic in (TOPIC, "none"):
            request = REQUESTS[name][0](broker)
            (named,) = request.topics
            field = "name" if hasattr(named, "name") else "topic"
            setattr(named, field, topic)
            response = call(broker, name, request)
            setattr(response.topics[0], field, "")
            answers.append(response)
        assert answers[0] == answers[1]


def test_a_member_of_a_share_group_gets_only_topics_that_it_may_read(broker: Broker) -> None:
    may_read = (Operation.READ, ResourceType.GROUP, GROUP)
    broker.authorization.authorizer = Denier({may_read})
    fetched = call(broker, "share_fetch", REQUESTS["share_fetch"][0](broker))
    acknowledged = call(broker, "share_acknowledge", REQUESTS["share_acknowledge"][0](broker))
    assert error_codes(fetched) == error_codes(acknowledged) == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert len(broker.sharing) == 0


def test_remembered_answers_stay_with_the_principal(broker: Broker) -> None:
    api = APIS[3]
    handle = api.handler(broker)

    def topics(principal: Principal) -> list[str]:
        context = Context("host", "127.0.0.1", 9092, api_key=3, api_version=12, requester=Requester(principal, "host"))
        response = handle(metadata.MetadataRequest(None), context)
        return [it.name or "" for it in metadata.MetadataResponse.read(Reader(written(response, 12)), 12).topics]

    @attrs.define
    class OnlyAnonymous(Denier):
        def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
            return requester.principal == ANONYMOUS

    broker.authorization.authorizer = OnlyAnonymous()
    for _ in range(2):
        assert TOPIC in topics(ANONYMOUS)
        assert topics(MALLORY.principal) == []


def test_authorized_operations_are_what_the_authorizer_allows(broker: Broker) -> None:
    broker.authorization.authorizer = Denier(
        {
            (Operation.DESCRIBE, ResourceType.TOPIC, TOPIC),
            (Operation.READ, ResourceType.TOPIC, TOPIC),
            (Operation.DESCRIBE, ResourceType.GROUP, GROUP),
            (Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"),
        }
    )
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)], True, True, True)
    answer = call(broker, "metadata", request, version=10)
    (topic,) = answer.topics
    assert answer.cluster_authorized_operations == 1 << Operation.DESCRIBE
    assert topic.topic_authorized_operations == 1 << Operation.DESCRIBE | 1 << Operation.READ
    (group,) = call(broker, "describe_groups", REQUESTS["describe_groups"][0](broker)).groups
    assert group.authorized_operations == 1 << Operation.DESCRIBE
    cluster = call(broker, "describe_cluster", REQUESTS["describe_cluster"][0](broker))
    assert cluster.cluster_authorized_operations == 1 << Operation.DESCRIBE


@pytest.mark.parametrize("may_describe", [False, True])
def test_what_may_be_done_to_the_cluster_is_sent_to_those_who_may_describe_it(
    broker: Broker, may_describe: bool
) -> None:
    operations = {Operation.ALTER, Operation.DESCRIBE} if may_describe else {Operation.ALTER}
    broker.authorization.authorizer = Denier({(it, ResourceType.CLUSTER, "kafka-cluster") for it in operations})
    request = metadata.MetadataRequest([], include_cluster_authorized_operations=True)
    expected = 1 << Operation.ALTER | 1 << Operation.DESCRIBE if may_describe else 0
    assert call(broker, "metadata", request, version=10).cluster_authorized_operations == expected
    described = call(broker, "describe_cluster", REQUESTS["describe_cluster"][0](broker))
    assert described.cluster_authorized_operations == expected


def test_what_may_be_done_to_a_topic_is_returned_whether_it_exists_or_not(broker: Broker) -> None:
    broker.authorization.authorizer = Denier(
        {
            (Operation.DESCRIBE, ResourceType.TOPIC, TOPIC),
            (Operation.READ, ResourceType.TOPIC, TOPIC),
            (Operation.DESCRIBE, ResourceType.TOPIC, "none"),
        }
    )
    names = [describe_topic_partitions.TopicRequest(it) for it in (TOPIC, "none")]
    described = call(
        broker, "describe_topic_partitions", describe_topic_partitions.DescribeTopicPartitionsRequest(names)
    )
    assert {it.name: it.topic_authorized_operations for it in described.topics} == {
        TOPIC: 1 << Operation.DESCRIBE | 1 << Operation.READ,
        "none": 1 << Operation.DESCRIBE,
    }


def described_to(broker: Broker, kind: str, permitted: set[tuple[Operation, ResourceType, str]]) -> Any:
    """Returns the description of a group of that kind. Its only member subscribes to the topic."""
    api = f"{kind}_group_describe"
    request = REQUESTS[f"{kind}_group_heartbeat"][0](broker)
    request.group_id = f"{kind}-group"
    assert call(broker, f"{kind}_group_heartbeat", request).error_code == 0
    describe = REQUESTS[api][0](broker)
    describe.group_ids = [f"{kind}-group"]
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.GROUP, f"{kind}-group"), *permitted})
    [group] = call(broker, api, describe).groups
    return group


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_what_may_be_done_to_a_group_is_returned_for_every_kind(broker: Broker, kind: str) -> None:
    seen = {(Operation.DESCRIBE, ResourceType.TOPIC, it) for it in (TOPIC, "changelog")}
    group = described_to(broker, kind, {*seen, (Operation.DELETE, ResourceType.GROUP, f"{kind}-group")})
    assert (group.error_code, len(group.members)) == (0, 1)
    assert group.authorized_operations == 1 << Operation.DESCRIBE | 1 << Operation.DELETE


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_a_group_is_not_shown_to_those_who_may_not_see_its_topics(broker: Broker, kind: str) -> None:
    group = described_to(broker, kind, set())
    assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "topic" in (group.error_message or "")
    assert group.members == []
    assert TOPIC not in repr(group)


def test_offsets_of_a_share_group_are_returned_for_topics_that_may_be_seen(broker: Broker) -> None:
    alter = REQUESTS["alter_share_group_offsets"][0](broker)
    everything = REQUESTS["describe_share_group_offsets"][0](broker)
    alter.group_id = everything.groups[0].group_id = "share-group"
    assert error_codes(call(broker, "alter_share_group_offsets", alter)) == {0}
    seen = (Operation.DESCRIBE, ResourceType.GROUP, "share-group")
    for permitted, names in (({seen}, []), ({seen, (Operation.DESCRIBE, ResourceType.TOPIC, TOPIC)}, [TOPIC])):
        broker.authorization.authorizer = Denier(permitted)
        [group] = call(broker, "describe_share_group_offsets", everything).groups
        assert (group.error_code, [it.topic_name for it in group.topics]) == (0, names)


def test_a_partition_is_served_to_those_who_have_the_permission(broker: Broker) -> None:
    broker.authorization.authorizer = Denier(
        {(Operation.READ, ResourceType.TOPIC, TOPIC), (Operation.WRITE, ResourceType.TOPIC, TOPIC)}
    )
    produced = call(broker, "produce", REQUESTS["produce"][0](broker))
    assert error_codes(produced) == {0}
    fetched = call(broker, "fetch", REQUESTS["fetch"][0](broker))
    assert error_codes(fetched) == {0}
    assert error_codes(call(broker, "fetch", REQUESTS["fetch"][1](broker))) == {
        0,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }, "a follower needs more"
