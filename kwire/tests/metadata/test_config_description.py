"""DescribeConfigs: the configurations and their sources were read off Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

from kwire.config.definition import ConfigSource, ConfigType
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.service import MetadataService
from testkit.metadata.config_requests import (
    BROKER,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    TOPIC,
    E,
    described,
    incremental,
    origins,
    result,
)
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import lacks, service


@pytest.fixture
def metadata() -> MetadataService:
    opened = service({"log.retention.hours": "100", "ssl.keystore.password": "secret", "my.plugin.key": "secret"})
    answered(opened.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)])))
    return opened


def test_a_topic_is_described_whole(metadata: MetadataService) -> None:
    entries = described(metadata, TOPIC, "t")
    assert len(entries) == 34
    assert all(not entry.read_only and not entry.is_sensitive and entry.documentation for entry in entries.values())
    entry = entries["cleanup.policy"]
    assert (entry.value, entry.config_source, entry.config_type) == ("delete", 5, ConfigType.LIST)
    assert origins(entry) == [("log.cleanup.policy", "delete", 5)]
    # As Kafka: only a weaker synonym was set, so no origin is named.
    entry = entries["retention.ms"]
    assert (entry.value, entry.config_source, origins(entry)) == ("360000000", 5, [])


def test_topic_overrides_are_distinguished_from_defaults(metadata: MetadataService) -> None:
    answered(
        metadata.change(
            create_topics,
            CreateTopicsRequest([CreatableTopic("u", 1, 1, [], [CreatableTopicConfig("segment.bytes", "2097152")])]),
        )
    )
    entries = described(metadata, TOPIC, "u")
    overridden = {name for name, entry in entries.items() if entry.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG}
    assert overridden == {"segment.bytes"}
    assert origins(entries["segment.bytes"]) == [
        ("segment.bytes", "2097152", 1),
        ("log.segment.bytes", "1073741824", 5),
    ]


def test_only_the_requested_keys_are_described(metadata: MetadataService) -> None:
    keys = ["segment.bytes", "nonsense", "internal.segment.bytes"]
    assert list(described(metadata, TOPIC, "t", keys)) == ["segment.bytes"]
    assert len(described(metadata, TOPIC, "t", [])) == 34


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


def test_secrets_are_named_but_not_shown(metadata: MetadataService) -> None:
    entries = described(metadata, BROKER, "1")
    for name in ("ssl.keystore.password", "my.plugin.key"):
        assert entries[name].is_sensitive
        assert entries[name].value is None
        assert [it.value for it in entries[name].synonyms] == [None]


def test_the_cluster_default_has_only_what_was_set(metadata: MetadataService) -> None:
    [given] = described(metadata, BROKER, "").values()
    assert origins(given) == [("min.insync.replicas", "1", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]
    incremental(metadata, BROKER, "", ("log.retention.ms", SET, "5"))
    entries = described(metadata, BROKER, "")
    assert origins(entries["log.retention.ms"]) == [
        ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]


def test_groups_and_metrics_are_described_and_loggers_too(metadata: MetadataService) -> None:
    assert incremental(metadata, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == (E.NONE, None)
    entries = described(metadata, GROUP, "g")
    assert len(entries) == 24
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
    ("resource_type", "name", "code", "facts"),
    [
        (TOPIC, "nope", E.UNKNOWN_TOPIC_OR_PARTITION, ()),
        (TOPIC, "", E.INVALID_TOPIC_EXCEPTION, ("empty string is not allowed",)),
        (
            BROKER,
            "2",
            E.INVALID_REQUEST,
            ("expected 1", "received 2"),
        ),
        (BROKER, "x", E.INVALID_REQUEST, ("x", "must be an integer")),
        (LOGGER, "", E.INVALID_REQUEST, ("empty", "broker")),
        (LOGGER, "2", E.INVALID_REQUEST, ("expected 1", "received 2")),
        (METRICS, "", E.INVALID_REQUEST, ("empty", "client metrics subscription")),
        (GROUP, "", E.INVALID_REQUEST, ("empty", "group")),
        (3, "x", E.INVALID_REQUEST, ()),
    ],
)
def test_description_refusals(
    metadata: MetadataService, resource_type: int, name: str, code: ErrorCode, facts: tuple[str, ...]
) -> None:
    answer = result(metadata, resource_type, name)
    assert (answer.error_code, answer.configs) == (code, [])
    assert lacks(answer.error_message, *facts) == []
    assert (answer.resource_type, answer.resource_name) == (resource_type, name)
