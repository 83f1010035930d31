"""AlterClientQuotas and DescribeClientQuotas: refusals and their codes are Apache Kafka 4.3.1's."""

from __future__ import annotations

import math
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

from kwire.handlers import alter_client_quotas, create_topics, describe_client_quotas
from kwire.handlers.apis import bound
from kwire.metadata.controller import deciding
from kwire.metadata.controller.access import client_quotas as rules
from kwire.metadata.image import Changes
from kwire.metadata.service import MetadataService
from kwire.metadata.snapshots import image_records
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import FakeBroker, context, lacks, service

E = ErrorCode
Entity = dict[str, str | None]


def entry(
    entity: Entity | list[tuple[str, str | None]], *ops: tuple[str, float | None]
) -> AlterClientQuotasRequestEntryData:
    pairs = list(entity.items()) if isinstance(entity, dict) else entity
    return AlterClientQuotasRequestEntryData(
        [AlterClientQuotasRequestEntityData(entity_type, name) for entity_type, name in pairs],
        [OpData(key, value or 0.0, remove=value is None) for key, value in ops],
    )


def alter(
    metadata: MetadataService, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> list[tuple[Entity, ErrorCode, str | None]]:
    broker: Any = FakeBroker(metadata)
    request = AlterClientQuotasRequest(list(entries), validate_only)
    response = answered(bound(alter_client_quotas.handle, broker)(request, context(1)))
    return [
        ({its.entity_type: its.entity_name for its in it.entity}, ErrorCode(it.error_code), it.error_message)
        for it in response.entries
    ]


def describe(metadata: MetadataService, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    broker: Any = FakeBroker(metadata)
    request = DescribeClientQuotasRequest([ComponentData(*it) for it in components], strict)
    return bound(describe_client_quotas.handle, broker)(request, context(1))


def described(metadata: MetadataService, *components: tuple[str, int, str | None], strict: bool = False) -> list[str]:
    response = describe(metadata, *components, strict=strict)
    assert (response.error_code, response.error_message) == (0, None)
    return sorted(
        ",".join(f"{its.entity_type}={its.entity_name}" for its in it.entity)
        + ": "
        + ",".join(f"{value.key}={value.value:g}" for value in it.values)
        for it in response.entries
    )


def test_quotas_are_set_changed_and_removed_and_watchers_are_notified() -> None:
    metadata = service()
    notified: list[Changes] = []
    metadata.watch(notified.append)
    alice: Entity = {"user": "alice"}
    both = (("producer_byte_rate", 1000.0), ("request_percentage", 12.5))
    assert alter(metadata, entry(alice, *both)) == [(alice, E.NONE, None)]
    assert described(metadata) == ["user=alice: producer_byte_rate=1000,request_percentage=12.5"]
    assert alter(metadata, entry(alice, ("producer_byte_rate", None), ("request_percentage", 50.0)))[0][1] is E.NONE
    assert described(metadata) == ["user=alice: request_percentage=50"]
    assert alter(metadata, entry(alice, ("request_percentage", None)))[0][1] is E.NONE
    assert described(metadata) == []
    assert [it.access.quotas for it in notified if it.access.quotas] == [{(("user", "alice"),)}] * 3


def test_what_changes_nothing_is_not_recorded() -> None:
    metadata = service()
    alter(metadata, entry({"user": None}, ("producer_byte_rate", 5.0)))
    end = metadata.log.end_offset
    notified: list[Changes] = []
    metadata.watch(notified.append)
    alter(metadata, entry({"user": None}, ("producer_byte_rate", 5.0), ("consumer_byte_rate", None)))
    alter(metadata, entry({"user": "nobody"}, ("producer_byte_rate", None)))
    alter(metadata, entry({"user": "nobody"}, ("producer_byte_rate", 1.0)), validate_only=True)
    assert not any(it.access.quotas for it in notified)
    assert metadata.log.end_offset == end
    assert len(metadata.image.access.quotas) == 1


@pytest.mark.parametrize(
    ("entity", "ops", "facts"),
    [
        pytest.param({}, [], ["entity"], id="nobody"),
        pytest.param({"group": "g"}, [], ["'group'", "user", "client-id", "ip"], id="type"),
        pytest.param({"": "g"}, [], ["''"], id="no type"),
        pytest.param({"user": ""}, [], ["user", "empty"], id="no name"),
        pytest.param({"ip": ""}, [], ["ip", "empty"], id="no address"),
        pytest.param({"ip": "127.0.0.1", "user": "a"}, [], ["ip", "user"], id="ip and user"),
        pytest.param({"ip": None, "client-id": "a"}, [], ["ip", "client-id"], id="ip and client id"),
        pytest.param({"ip": "no such host.invalid"}, [], ["no such host.invalid"], id="host"),
        pytest.param({"user": "a"}, [("rate", 1.0)], ["'rate'", "producer_byte_rate"], id="key"),
        pytest.param({"user": "a"}, [("connection_creation_rate", 1.0)], ["connection_creation_rate"], id="ip's key"),
        pytest.param({"ip": None}, [("producer_byte_rate", 1.0)], ["producer_byte_rate"], id="user's key"),
        pytest.param({"user": "a"}, [("producer_byte_rate", 0.0)], ["producer_byte_rate", "0"], id="zero"),
        pytest.param({"user": "a"}, [("request_percentage", -1.0)], ["request_percentage", "-1"], id="negative"),
        pytest.param({"user": "a"}, [("producer_byte_rate", 1.5)], ["whole", "1.5"], id="fraction"),
        pytest.param({"user": "a"}, [("producer_byte_rate", 1e19)], ["9223372036854775808"], id="long"),
        pytest.param({"user": "a"}, [("producer_byte_rate", math.inf)], ["inf"], id="infinite"),
        pytest.param({"ip": None}, [("connection_creation_rate", 2.0**31)], ["2147483647"], id="int"),
        pytest.param(
            {"user": "a"}, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)], ["Duplicate"], id="key twice"
        ),
    ],
)
def test_refusals(entity: Entity, ops: list[tuple[str, float]], facts: list[str]) -> None:
    metadata = service()
    valid: Entity = {"user": "valid"}
    right = [] if "ip" in entity else [("consumer_byte_rate", 1.0)]
    (first, code, message), second = alter(
        metadata, entry(entity, *right, *ops), entry(valid, ("consumer_byte_rate", 7.0))
    )
    assert (first, code) == (entity, E.INVALID_REQUEST)
    assert lacks(message, *facts) == []
    assert second == (valid, E.NONE, None)
    assert described(metadata) == ["user=valid: consumer_byte_rate=7"]


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ({"user": "a"}, "producer_byte_rate", 2.0**63),
        ({"user": "a"}, "producer_byte_rate", 1.0000001),
        ({"client-id": "a"}, "consumer_byte_rate", math.nan),
        ({"user": None, "client-id": "a"}, "request_percentage", 1e-300),
        ({"user": "a", "client-id": None}, "controller_mutation_rate", math.inf),
        ({"ip": None}, "connection_creation_rate", 2.0**31 - 1),
        ({"ip": "::1"}, "connection_creation_rate", 1.0),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", 1.0),
    ],
)
def test_what_is_unusual_and_valid(entity: Entity, key: str, value: float) -> None:
    metadata = service()
    assert alter(metadata, entry(entity, (key, value))) == [(dict(sorted(entity.items())), E.NONE, None)]
    (values,) = metadata.image.access.quotas.values()
    assert str(values) == str({key: value})


def test_of_an_entity_that_is_named_twice_the_first_counts_and_the_answer_is_an_error() -> None:
    metadata = service()
    twice = [entry({"user": "a"}, ("producer_byte_rate", value)) for value in (1.0, 2.0)]
    ((entity, code, message),) = alter(metadata, *twice)
    assert (entity, code) == ({"user": "a"}, E.INVALID_REQUEST)
    assert lacks(message, "Duplicate", "'a'") == []
    assert described(metadata) == ["user=a: producer_byte_rate=1"]


def test_of_a_type_that_is_named_twice_the_last_counts() -> None:
    metadata = service()
    named = entry([("user", "a"), ("user", "b")], ("producer_byte_rate", 1.0))
    assert alter(metadata, named) == [({"user": "b"}, E.NONE, None)]


def test_too_many_changes_are_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "MAX_RECORDS_PER_REQUEST", 3)
    metadata = service()
    many = [entry({"user": str(number)}, ("producer_byte_rate", 1.0)) for number in range(4)]
    assert {code for _, code, _ in alter(metadata, *many)} == {E.POLICY_VIOLATION}
    assert described(metadata) == []
    assert {code for _, code, _ in alter(metadata, *many[1:])} == {E.NONE}


def with_quotas() -> MetadataService:
    metadata = service()
    rate = ("producer_byte_rate", 1.0)
    entities: list[Entity] = [
        {"user": "a"},
        {"user": None},
        {"user": "a", "client-id": "c"},
        {"user": "a", "client-id": None},
        {"client-id": "c"},
    ]
    alter(metadata, *(entry(it, rate) for it in entities), entry({"ip": None}, ("connection_creation_rate", 1.0)))
    return metadata


EXACT, DEFAULT, ANY = range(3)


@pytest.mark.parametrize(
    ("components", "expected", "strictly"),
    [
        pytest.param([], 6, 0, id="none"),
        pytest.param([("user", EXACT, "a")], 3, 1, id="user"),
        pytest.param([("user", DEFAULT, None)], 1, 1, id="default user"),
        pytest.param([("user", ANY, None)], 4, 2, id="any user"),
        pytest.param([("user", EXACT, "a"), ("client-id", DEFAULT, None)], 1, 1, id="user, default client"),
        pytest.param([("user", ANY, None), ("client-id", ANY, None)], 2, 2, id="pairs"),
        pytest.param([("client-id", EXACT, "c")], 2, 1, id="client id"),
        pytest.param([("ip", ANY, None)], 1, 1, id="ip"),
        pytest.param([("user", EXACT, "nobody")], 0, 0, id="nobody"),
    ],
)
def test_filters(components: list[tuple[str, int, str | None]], expected: int, strictly: int) -> None:
    metadata = with_quotas()
    assert len(described(metadata, *components)) == expected
    assert len(described(metadata, *components, strict=True)) == strictly


@pytest.mark.parametrize(
    ("components", "code"),
    [
        pytest.param([("", ANY, None)], E.INVALID_REQUEST, id="no type"),
        pytest.param([("group", ANY, None)], E.UNSUPPORTED_VERSION, id="type"),
        pytest.param([("user", ANY, None), ("user", EXACT, "a")], E.INVALID_REQUEST, id="twice"),
        pytest.param([("user", EXACT, None)], E.INVALID_REQUEST, id="exactly nothing"),
        pytest.param([("user", DEFAULT, "a")], E.INVALID_REQUEST, id="default with name"),
        pytest.param([("user", ANY, "a")], E.INVALID_REQUEST, id="any with name"),
        pytest.param([("user", 3, None)], E.INVALID_REQUEST, id="match type"),
        pytest.param([("user", -1, "a")], E.INVALID_REQUEST, id="negative match type"),
        pytest.param([("ip", ANY, None), ("user", ANY, None)], E.INVALID_REQUEST, id="ip and user"),
    ],
)
def test_filters_that_are_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    response = describe(with_quotas(), *components)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message


def test_a_snapshot_has_them() -> None:
    metadata = with_quotas()
    assert sum(type(it).__name__ == "ClientQuotaRecord" for it in image_records(metadata.image)) == 6


def test_who_may_create_fewer_topics_gets_an_error_in_a_new_version_and_has_to_wait_in_an_old_one() -> None:
    metadata = service()
    broker: Any = FakeBroker(metadata)
    broker.client_quotas.follow({(("user", "ANONYMOUS"),): {"controller_mutation_rate": 1.0}})
    topics = [CreatableTopic(name, 11, 1) for name in ("a", "b", "c")]
    new = answered(bound(create_topics.handle, broker)(CreateTopicsRequest(topics), context(6)))
    assert [it.error_code for it in new.topics] == [E.NONE, E.NONE, E.THROTTLING_QUOTA_EXCEEDED]
    assert lacks(new.topics[2].error_message, "11000 ms") == []
    assert new.throttle_time_ms == 11_000
    assert list(metadata.image.topics) == ["a", "b"]
    old = answered(bound(create_topics.handle, broker)(CreateTopicsRequest(topics[2:]), context(5)))
    assert [it.error_code for it in old.topics] == [E.NONE]
    assert old.throttle_time_ms == 22_000
    invalid = answered(bound(create_topics.handle, broker)(CreateTopicsRequest(topics), context(6)))
    assert {it.error_code for it in invalid.topics} == {E.TOPIC_ALREADY_EXISTS}
    assert invalid.throttle_time_ms == 0


def test_the_rules_are_of_two_kinds() -> None:
    assert not rules._OF_CLIENTS.keys() & rules._OF_ADDRESSES.keys()
