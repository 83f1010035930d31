"""AlterConfigs, IncrementalAlterConfigs, DescribeConfigs: answers and words were read off Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import alter_configs, incremental_alter_configs
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)

from kwire.configs.definition import ConfigSource, ConfigType
from kwire.handlers import alter_configs as alter_configs_handler
from kwire.handlers import describe_configs as describe_configs_handler
from kwire.handlers import incremental_alter_configs as incremental_alter_configs_handler
from kwire.metadata.config_changes import Operation
from kwire.metadata.image import Changes, ResourceType
from kwire.metadata.service import MetadataService
from kwire.tests.metadata.harness import FakeBroker, context, run, service

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = Operation.SET, Operation.DELETE, Operation.APPEND, Operation.SUBTRACT
TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
METRICS, GROUP = ResourceType.CLIENT_METRICS, ResourceType.GROUP
Answer = tuple[ErrorCode, str | None]


@pytest.fixture
def metadata() -> MetadataService:
    opened = service({"log.retention.hours": "100", "ssl.keystore.password": "secret", "my.plugin.key": "secret"})
    opened.create_topics(CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
    return opened


def incremental(
    metadata: MetadataService,
    resource_type: int,
    name: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
) -> Answer:
    configs = [incremental_alter_configs.AlterableConfig(*it) for it in operations]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(resource_type, name, configs)], validate_only
    )
    broker: Any = FakeBroker(metadata)
    (answer,) = run(incremental_alter_configs_handler.handle(broker, request, context(1))).responses
    assert (answer.resource_type, answer.resource_name) == (resource_type, name)
    return ErrorCode(answer.error_code), answer.error_message


def replace(metadata: MetadataService, resource_type: int, name: str, *configs: tuple[str, str | None]) -> Answer:
    request = alter_configs.AlterConfigsRequest(
        [
            alter_configs.AlterConfigsResource(
                resource_type, name, [alter_configs.AlterableConfig(*it) for it in configs]
            )
        ]
    )
    broker: Any = FakeBroker(metadata)
    (answer,) = run(alter_configs_handler.handle(broker, request, context(2))).responses
    return ErrorCode(answer.error_code), answer.error_message


def result(
    metadata: MetadataService, resource_type: int, name: str, keys: list[str] | None = None, *, details: bool = True
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest([DescribeConfigsResource(resource_type, name, keys)], details, details)
    broker: Any = FakeBroker(metadata)
    return run(describe_configs_handler.handle(broker, request, context(4))).results[0]


def described(
    metadata: MetadataService, resource_type: int, name: str, keys: list[str] | None = None
) -> dict[str, DescribeConfigsResourceResult]:
    answer = result(metadata, resource_type, name, keys)
    assert answer.error_code == E.NONE
    return {it.name: it for it in answer.configs}


def origins(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(it.name, it.value, it.source) for it in entry.synonyms]


# -- changing


def test_set_is_visible_at_once_and_watchers_are_told(metadata: MetadataService) -> None:
    told: list[Changes] = []
    metadata.watch(told.append)
    assert incremental(metadata, TOPIC, "t", ("retention.ms", SET, "5")) == (E.NONE, None)
    assert metadata.topic_values("t")["retention.ms"] == 5
    assert told[-1].configured_topics() == ["t"]
    assert incremental(metadata, TOPIC, "t", ("retention.ms", DELETE, None)) == (E.NONE, None)
    assert metadata.topic_values("t")["retention.ms"] == 360_000_000


def test_lists_are_appended_to_and_subtracted_from(metadata: MetadataService) -> None:
    def policy() -> str | None:
        return described(metadata, TOPIC, "t")["cleanup.policy"].value

    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact,delete", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (DELETE, None, "delete"),
    ):
        assert incremental(metadata, TOPIC, "t", ("cleanup.policy", operation, value)) == (E.NONE, None)
        assert policy() == expected


def test_replacing_drops_what_is_not_named(metadata: MetadataService) -> None:
    assert replace(metadata, TOPIC, "t", ("retention.ms", "77"), ("segment.bytes", "2097152")) == (E.NONE, None)
    assert replace(metadata, TOPIC, "t", ("retention.ms", "78")) == (E.NONE, None)
    assert metadata.image.config(TOPIC, "t") == {"retention.ms": "78"}
    assert replace(metadata, TOPIC, "t") == (E.NONE, None)
    assert metadata.image.config(TOPIC, "t") == {}


def test_unchanged_configuration_writes_nothing(metadata: MetadataService) -> None:
    incremental(metadata, TOPIC, "t", ("retention.ms", SET, "5"))
    before = metadata.image.offset
    assert incremental(metadata, TOPIC, "t", ("retention.ms", SET, "5"), ("nonsense", DELETE, None)) == (E.NONE, None)
    assert replace(metadata, TOPIC, "t", ("retention.ms", "5")) == (E.NONE, None)
    assert metadata.image.offset == before


def test_validate_only_changes_nothing(metadata: MetadataService) -> None:
    assert incremental(metadata, TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True) == (E.NONE, None)
    assert incremental(metadata, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True)[0] == E.INVALID_CONFIG
    assert metadata.image.config(TOPIC, "t") == {}


def test_a_refused_change_leaves_the_whole_resource_alone(metadata: MetadataService) -> None:
    answer = incremental(metadata, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "0"))
    assert answer == (E.INVALID_CONFIG, "Invalid value 0 for configuration segment.ms: Value must be at least 1")
    assert metadata.image.config(TOPIC, "t") == {}


def test_each_resource_must_appear_once(metadata: MetadataService) -> None:
    resource = incremental_alter_configs.AlterConfigsResource(
        TOPIC, "t", [incremental_alter_configs.AlterableConfig("retention.ms", SET, "5")]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource, resource])
    broker: Any = FakeBroker(metadata)
    answers = run(incremental_alter_configs_handler.handle(broker, request, context(1))).responses
    assert [(it.error_code, it.error_message) for it in answers] == [
        (E.INVALID_REQUEST, "Each resource must appear at most once.")
    ] * 2
    assert metadata.image.config(TOPIC, "t") == {}


BAD_GROUP_RESET = (
    "Invalid value x for configuration share.auto.offset.reset: Invalid value `x` for configuration "
    "share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format "
    "'by_duration:<PnDTnHnMn.nS>'."
)


@pytest.mark.parametrize(
    ("resource_type", "name", "operation", "code", "message"),
    [
        (TOPIC, "nope", ("a", SET, "1"), E.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist."),
        (TOPIC, "", ("a", SET, "1"), E.INVALID_REQUEST, "Default topic resources are not allowed."),
        (TOPIC, "t", ("nonsense", SET, "1"), E.INVALID_CONFIG, "Unknown topic config name: nonsense"),
        (TOPIC, "t", ("segment.ms", SET, None), E.INVALID_REQUEST, "Null value not supported for : segment.ms"),
        (TOPIC, "t", ("segment.ms", 9, "1"), E.INVALID_REQUEST, "Unknown operations type 9"),
        (
            TOPIC,
            "t",
            ("retention.ms", APPEND, "5"),
            E.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            TOPIC,
            "t",
            ("cleanup.policy", APPEND, "bogus"),
            E.INVALID_CONFIG,
            "Invalid value bogus for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            BROKER,
            "1",
            ("num.partitions", SET, "3"),
            E.INVALID_REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            BROKER,
            "2",
            ("log.retention.ms", SET, "3"),
            E.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 2",
        ),
        (
            BROKER,
            "x",
            ("log.retention.ms", SET, "3"),
            E.INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (
            BROKER,
            "",
            ("log.segment.bytes", SET, "5"),
            E.INVALID_REQUEST,
            "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            BROKER,
            "1",
            ("log.retention.ms", APPEND, "3"),
            E.INVALID_CONFIG,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        (LOGGER, "1", ("root", SET, "DEBUG"), E.INVALID_REQUEST, "kwire does not change log levels while it runs."),
        (METRICS, "", ("match", SET, ""), E.INVALID_REQUEST, "Subscription name can't be empty"),
        (
            METRICS,
            "m",
            ("interval.ms", SET, "10"),
            E.INVALID_REQUEST,
            "Invalid value 10 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (METRICS, "m", ("nonsense", SET, "1"), E.INVALID_REQUEST, "Unknown client metrics configuration: nonsense"),
        (METRICS, "m", ("match", SET, "bogus"), E.INVALID_CONFIG, "Illegal client matching pattern: bogus"),
        (GROUP, "", ("a", SET, "1"), E.INVALID_REQUEST, "Default group resources are not allowed."),
        (GROUP, "g", ("nonsense", SET, "1"), E.INVALID_CONFIG, "Unknown group config name: nonsense"),
        (
            GROUP,
            "g",
            ("consumer.session.timeout.ms", SET, "5"),
            E.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            GROUP,
            "g",
            ("consumer.session.timeout.ms", SET, "100000"),
            E.INVALID_CONFIG,
            "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (GROUP, "g", ("share.auto.offset.reset", SET, "x"), E.INVALID_CONFIG, BAD_GROUP_RESET),
        (3, "x", ("a", SET, "1"), E.INVALID_REQUEST, "Unknown resource type 3"),
    ],
)
def test_refused_changes(
    metadata: MetadataService,
    resource_type: int,
    name: str,
    operation: tuple[str, int, str | None],
    code: ErrorCode,
    message: str,
) -> None:
    before = metadata.image.offset
    assert incremental(metadata, resource_type, name, operation) == (code, message)
    assert metadata.image.offset == before


def test_duplicate_keys_are_refused(metadata: MetadataService) -> None:
    twice = ("retention.ms", SET, "5"), ("retention.ms", SET, "6")
    assert incremental(metadata, TOPIC, "t", *twice) == (E.INVALID_REQUEST, "Error due to duplicate config keys")


def test_broker_configuration_changes_the_default_of_topics(metadata: MetadataService) -> None:
    assert incremental(metadata, BROKER, "", ("log.retention.ms", SET, "2000000")) == (E.NONE, None)
    assert incremental(metadata, BROKER, "1", ("log.retention.ms", SET, "1000000")) == (E.NONE, None)
    entry = described(metadata, TOPIC, "t")["retention.ms"]
    assert (entry.value, entry.config_source) == ("1000000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert origins(entry) == [
        ("log.retention.ms", "1000000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "100", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]
    assert incremental(metadata, BROKER, "1", ("log.retention.ms", DELETE, None)) == (E.NONE, None)
    assert metadata.topic_values("t")["retention.ms"] == 2_000_000


def test_dynamic_broker_configuration_is_in_the_servers_config(metadata: MetadataService) -> None:
    assert incremental(metadata, BROKER, "1", ("message.max.bytes", SET, "5000")) == (E.NONE, None)
    assert metadata.config.message_max_bytes == 5000
    assert incremental(metadata, BROKER, "1", ("message.max.bytes", DELETE, None)) == (E.NONE, None)
    assert metadata.config.message_max_bytes == 1_048_588


# -- describing


def test_a_topic_is_described_whole(metadata: MetadataService) -> None:
    entries = described(metadata, TOPIC, "t")
    assert len(entries) == 33
    assert all(not entry.read_only and not entry.is_sensitive and entry.documentation for entry in entries.values())
    entry = entries["cleanup.policy"]
    assert (entry.value, entry.config_source, entry.config_type) == ("delete", 5, ConfigType.LIST)
    assert origins(entry) == [("log.cleanup.policy", "delete", 5)]
    # As Kafka: only a weaker synonym was set, so no origin is named.
    entry = entries["retention.ms"]
    assert (entry.value, entry.config_source, origins(entry)) == ("360000000", 5, [])


def test_topic_overrides_are_told_from_defaults(metadata: MetadataService) -> None:
    metadata.create_topics(
        CreateTopicsRequest([CreatableTopic("u", 1, 1, [], [CreatableTopicConfig("segment.bytes", "2097152")])])
    )
    entries = described(metadata, TOPIC, "u")
    overridden = {name for name, entry in entries.items() if entry.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG}
    assert overridden == {"segment.bytes"}
    assert origins(entries["segment.bytes"]) == [
        ("segment.bytes", "2097152", 1),
        ("log.segment.bytes", "1073741824", 5),
    ]


def test_only_the_keys_asked_for_are_described(metadata: MetadataService) -> None:
    keys = ["segment.bytes", "nonsense", "internal.segment.bytes"]
    assert list(described(metadata, TOPIC, "t", keys)) == ["segment.bytes"]
    assert len(described(metadata, TOPIC, "t", [])) == 33


def test_synonyms_and_documentation_only_on_request(metadata: MetadataService) -> None:
    (entry,) = result(metadata, TOPIC, "t", ["segment.bytes"], details=False).configs
    assert entry.synonyms == []
    assert entry.documentation is None


def test_a_broker_is_described_whole(metadata: MetadataService) -> None:
    entries = described(metadata, BROKER, "1")
    assert len(entries) > 300
    assert (entries["broker.id"].value, entries["node.id"].value) == ("1", "1")
    assert entries["num.partitions"].read_only
    assert not entries["log.retention.ms"].read_only
    assert entries["log.retention.hours"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert "log.initial.task.delay.ms" not in entries
    assert entries["listeners"].value == "PLAINTEXT://127.0.0.1:9092"


def test_secrets_are_named_but_not_told(metadata: MetadataService) -> None:
    entries = described(metadata, BROKER, "1")
    for name in ("ssl.keystore.password", "my.plugin.key"):
        assert entries[name].is_sensitive
        assert entries[name].value is None
        assert [it.value for it in entries[name].synonyms] == [None]


def test_the_cluster_default_has_only_what_was_set(metadata: MetadataService) -> None:
    assert described(metadata, BROKER, "") == {}
    incremental(metadata, BROKER, "", ("log.retention.ms", SET, "5"))
    entries = described(metadata, BROKER, "")
    assert origins(entries["log.retention.ms"]) == [
        ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]


def test_groups_and_metrics_are_described_and_loggers_too(metadata: MetadataService) -> None:
    assert incremental(metadata, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == (E.NONE, None)
    entries = described(metadata, GROUP, "g")
    assert len(entries) == 17
    assert origins(entries["consumer.session.timeout.ms"]) == [
        ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert origins(entries["share.auto.offset.reset"]) == [("share.auto.offset.reset", "latest", 5)]
    assert incremental(metadata, METRICS, "m", ("interval.ms", SET, "1000")) == (E.NONE, None)
    entries = described(metadata, METRICS, "m")
    assert (entries["interval.ms"].value, entries["interval.ms"].config_source) == ("1000", 7)
    assert (entries["match"].value, origins(entries["match"])) == ("", [])
    assert list(described(metadata, LOGGER, "1")) == ["root"]


@pytest.mark.parametrize(
    ("resource_type", "name", "code", "message"),
    [
        (TOPIC, "nope", E.UNKNOWN_TOPIC_OR_PARTITION, None),
        (TOPIC, "", E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (
            BROKER,
            "2",
            E.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (BROKER, "x", E.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (LOGGER, "", E.INVALID_REQUEST, "Broker id must not be empty"),
        (LOGGER, "2", E.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 2"),
        (METRICS, "", E.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
        (GROUP, "", E.INVALID_REQUEST, "Group name must not be empty"),
        (3, "x", E.INVALID_REQUEST, None),
    ],
)
def test_description_refusals(
    metadata: MetadataService, resource_type: int, name: str, code: ErrorCode, message: str | None
) -> None:
    answer = result(metadata, resource_type, name)
    assert (answer.error_code, answer.error_message, answer.configs) == (code, message, [])
    assert (answer.resource_type, answer.resource_name) == (resource_type, name)
