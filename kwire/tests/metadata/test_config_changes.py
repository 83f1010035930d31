"""AlterConfigs and IncrementalAlterConfigs: refusals and their codes were read off Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import incremental_alter_configs
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

from kwire.config.definition import ConfigSource
from kwire.handlers import incremental_alter_configs as incremental_alter_configs_handler
from kwire.handlers.apis import bound
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.image import Changes
from kwire.metadata.service import MetadataService
from testkit.metadata.config_requests import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    E,
    described,
    incremental,
    origins,
    replace,
)
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import FakeBroker, context, lacks, service


@pytest.fixture
def metadata() -> MetadataService:
    opened = service({"log.retention.hours": "100", "ssl.keystore.password": "secret", "my.plugin.key": "secret"})
    answered(opened.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)])))
    return opened


def test_set_is_visible_at_once_and_watchers_are_notified(metadata: MetadataService) -> None:
    notified: list[Changes] = []
    metadata.watch(notified.append)
    assert incremental(metadata, TOPIC, "t", ("retention.ms", SET, "5")) == (E.NONE, None)
    assert metadata.topic_values("t")["retention.ms"] == 5
    assert notified[-1].configured_topics() == ["t"]
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
    code, message = incremental(metadata, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "0"))
    assert code == E.INVALID_CONFIG
    assert lacks(message, "Invalid value 0 for configuration segment.ms", "must be at least 1") == []
    assert metadata.image.config(TOPIC, "t") == {}


def test_each_resource_must_appear_once(metadata: MetadataService) -> None:
    resource = incremental_alter_configs.AlterConfigsResource(
        TOPIC, "t", [incremental_alter_configs.AlterableConfig("retention.ms", SET, "5")]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource, resource])
    broker: Any = FakeBroker(metadata)
    answers = answered(bound(incremental_alter_configs_handler.handle, broker)(request, context(1))).responses
    assert [it.error_code for it in answers] == [E.INVALID_REQUEST] * 2
    assert [lacks(it.error_message, "'t'", "more than once") for it in answers] == [[], []]
    assert metadata.image.config(TOPIC, "t") == {}


# compat_tests/test_config_answers.py has those that Apache Kafka puts in the same words.
@pytest.mark.parametrize(
    ("resource_type", "name", "operation", "code", "facts"),
    [
        (TOPIC, "nope", ("a", SET, "1"), E.UNKNOWN_TOPIC_OR_PARTITION, ("topic 'nope' not found",)),
        (TOPIC, "t", ("segment.ms", SET, None), E.INVALID_REQUEST, ("Null value not supported", "segment.ms")),
        (TOPIC, "t", ("segment.ms", 9, "1"), E.UNKNOWN_SERVER_ERROR, ("operation 9", "'segment.ms'")),
        (
            TOPIC,
            "t",
            ("cleanup.policy", APPEND, "bogus"),
            E.INVALID_CONFIG,
            ("Invalid value bogus for configuration cleanup.policy", "must be one of: compact, delete"),
        ),
        (
            BROKER,
            "1",
            ("log.retention.ms", APPEND, "3"),
            E.INVALID_CONFIG,
            ("Can't APPEND to key log.retention.ms",),
        ),
        (LOGGER, "1", ("root", SET, "DEBUG"), E.INVALID_REQUEST, ("log levels",)),
        (METRICS, "", ("match", SET, ""), E.INVALID_REQUEST, ("empty", "client metrics subscription")),
        (METRICS, "m", ("interval.ms", SET, " " * 20 + "10"), E.INVALID_REQUEST, ("Invalid value 10 for interval.ms",)),
        (
            METRICS,
            "m",
            ("match", SET, "bogus"),
            E.INVALID_CONFIG,
            ("Illegal client matching pattern: bogus", "attribute=pattern"),
        ),
        (
            GROUP,
            "g",
            ("consumer.session.timeout.ms", SET, "5"),
            E.INVALID_CONFIG,
            ("must be greater than or equal to group.consumer.min.session.timeout.ms", "45000"),
        ),
        (
            GROUP,
            "g",
            ("consumer.session.timeout.ms", SET, "100000"),
            E.INVALID_CONFIG,
            ("must be less than or equal to group.consumer.max.session.timeout.ms", "60000"),
        ),
        (
            GROUP,
            "g",
            ("share.auto.offset.reset", SET, "x"),
            E.INVALID_CONFIG,
            ("Invalid value x for configuration share.auto.offset.reset", "by_duration:"),
        ),
        (
            GROUP,
            "g",
            ("streams.num.standby.replicas", SET, "3"),
            E.INVALID_CONFIG,
            ("must be less than or equal to group.streams.max.standby.replicas", "2"),
        ),
        (BROKER, "", ("log.cleaner.dedupe.buffer.size", SET, "1048576"), E.INVALID_REQUEST, ("more than 1 MiB",)),
        (BROKER, "", ("num.io.threads", SET, "3"), E.INVALID_REQUEST, ("less than half the current value 8",)),
    ],
)
def test_refused_changes(
    metadata: MetadataService,
    resource_type: int,
    name: str,
    operation: tuple[str, int, str | None],
    code: ErrorCode,
    facts: tuple[str, ...],
) -> None:
    before = metadata.image.offset
    answered, message = incremental(metadata, resource_type, name, operation)
    assert answered == code
    assert lacks(message, *facts) == []
    assert metadata.image.offset == before


def test_duplicate_keys_are_refused(metadata: MetadataService) -> None:
    twice = ("retention.ms", SET, "5"), ("retention.ms", SET, "6")
    code, message = incremental(metadata, TOPIC, "t", *twice)
    assert code == E.INVALID_REQUEST
    assert lacks(message, "duplicate config keys", "retention.ms of t") == []


def test_a_number_of_threads_that_another_layer_hides_stands_in_no_ones_way(metadata: MetadataService) -> None:
    assert incremental(metadata, BROKER, "", ("num.io.threads", SET, "16")) == (E.NONE, None)
    for fewer in ("8", "4"):
        assert incremental(metadata, BROKER, "1", ("num.io.threads", SET, fewer)) == (E.NONE, None)
    assert incremental(metadata, BROKER, "", ("log.retention.ms", SET, "1000")) == (E.NONE, None)
    assert incremental(metadata, BROKER, "", ("num.io.threads", SET, "17"))[0] == E.INVALID_REQUEST


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
    assert incremental(metadata, BROKER, "1", ("max.connections", SET, "5000")) == (E.NONE, None)
    assert metadata.config.max_connections == 5000
    assert incremental(metadata, BROKER, "1", ("max.connections", DELETE, None)) == (E.NONE, None)
    assert metadata.config.max_connections == 2**31 - 1
