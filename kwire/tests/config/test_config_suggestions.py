"""Suggestions for unknown names of configurations."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.config.suggestions import did_you_mean, listed, nearest
from kwire.config.tables.broker import BROKER_NAMES_OF_TOPIC_CONFIGS, broker_configs
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.runtime.futures import at_once
from testkit.metadata.config_requests import BROKER, GROUP, METRICS, SET, TOPIC, incremental
from testkit.metadata.harness import service


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("num.partitons", "num.partitions"),
        ("log.retention.hour", "log.retention.hours"),
        ("auto.create.topic.enable", "auto.create.topics.enable"),
        ("retention.ms", "log.retention.ms"),
        ("cleanup.policy", "log.cleanup.policy"),
        ("our.plugin", None),
        ("", None),
        ("num.partitions" * 100, None),
    ],
)
def test_the_nearest_name_of_a_broker_is_suggested(name: str, meant: str | None) -> None:
    assert nearest(name, broker_configs(), BROKER_NAMES_OF_TOPIC_CONFIGS) == meant


def test_a_sentence_is_made_of_it_where_there_is_one() -> None:
    assert did_you_mean("retentionms", ["retention.ms", "segment.ms"]) == ". Did you mean retention.ms?"
    assert did_you_mean("something", ["retention.ms", "segment.ms"]) == ""


def test_of_many_unknown_names_the_first_are_listed() -> None:
    assert listed(["retentionms", *(f"x{number}" for number in range(11))], ["retention.ms"]) == (
        "'retentionms' (did you mean retention.ms?), 'x0', 'x1', 'x2', 'x3', 'x4', 'x5', 'x6', 'x7', 'x8', and 2 more"
    )


@pytest.mark.parametrize(
    ("resource", "name", "config", "meant"),
    [
        (TOPIC, "t", "retention.mss", "retention.ms"),
        (TOPIC, "t", "log.retention.ms", "retention.ms"),
        (TOPIC, "t", "log.roll.hours", "segment.ms"),
        (GROUP, "g", "consumer.session.timeout", "consumer.session.timeout.ms"),
        (METRICS, "m", "interval.mss", "interval.ms"),
    ],
)
def test_a_client_that_gives_an_unknown_name_gets_the_nearest(
    resource: int, name: str, config: str, meant: str
) -> None:
    metadata = service()
    at_once(metadata.change(auto_create_topic, "t"))
    code, message = incremental(metadata, resource, name, (config, SET, "1"))
    assert code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert message is not None
    assert message.endswith(f"{config}. Did you mean {meant}?")


def test_an_unknown_configuration_of_a_broker_is_kept_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata = service()
    assert incremental(metadata, BROKER, "", ("num.partitons", SET, "3")) == (ErrorCode.NONE, None)
    assert incremental(metadata, BROKER, "1", ("our.plugin", SET, "x")) == (ErrorCode.NONE, None)
    assert caplog.messages == [
        "unknown configurations: 'num.partitons' (did you mean num.partitions?)",
        "unknown configurations: 'our.plugin'",
    ]
    assert metadata.configs.effective["num.partitons"] == "3"
