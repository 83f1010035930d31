"""The layers of configuration: the value in force, and its reported source."""

from __future__ import annotations

from kwire.config.definition import ConfigSource
from kwire.config.resolution import ConfigResolver, Origin

STATIC, DEFAULT = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG
CLUSTER, BROKER = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG


def test_a_topic_takes_what_it_does_not_set_from_the_broker() -> None:
    resolver = ConfigResolver({"log.segment.bytes": "2097152"})
    assert resolver.topic_values({})["segment.bytes"] == 2_097_152
    assert resolver.topic_values({"segment.bytes": "3145728"})["segment.bytes"] == 3_145_728
    assert resolver.topic_values({})["cleanup.policy"] == ("delete",)


def test_units_of_synonyms_are_converted() -> None:
    assert ConfigResolver({"log.retention.hours": "2"}).topic_defaults()["retention.ms"] == 7_200_000
    assert ConfigResolver({"log.retention.minutes": "2"}).topic_defaults()["retention.ms"] == 120_000
    assert ConfigResolver({"log.roll.hours": "1"}).topic_defaults()["segment.ms"] == 3_600_000
    assert ConfigResolver({"log.flush.scheduler.interval.ms": "9"}).topic_defaults()["flush.ms"] == 9


def test_the_finer_unit_wins() -> None:
    static = {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}
    assert ConfigResolver(static).topic_defaults()["retention.ms"] == 4


def test_any_negative_retention_is_for_ever() -> None:
    assert ConfigResolver({"log.retention.hours": "-1"}).topic_defaults()["retention.ms"] == -1


def test_dynamic_layers_lie_over_the_static_one() -> None:
    resolver = ConfigResolver({"log.retention.ms": "1", "log.segment.bytes": "2097152"})
    resolver.update(dynamic_default={"log.retention.ms": "2"}, dynamic_broker={})
    assert resolver.topic_defaults()["retention.ms"] == 2
    resolver.update(dynamic_default={"log.retention.ms": "2"}, dynamic_broker={"log.retention.ms": "3"})
    assert resolver.topic_defaults()["retention.ms"] == 3
    resolver.update(dynamic_default={}, dynamic_broker={})
    assert resolver.topic_defaults()["retention.ms"] == 1
    assert resolver.topic_defaults()["segment.bytes"] == 2_097_152


def test_what_this_version_does_not_take_is_left_out_of_the_dynamic_layers() -> None:
    resolver = ConfigResolver({"log.retention.ms": "1"})
    resolver.update(
        dynamic_default={"log.retention.ms": "0", "log.segment.bytes": "2097152", "some.plugin": "x"},
        dynamic_broker={"num.partitions": "7", "log.roll.ms": "x", "log.segment.bytes": "1"},
    )
    assert resolver.topic_defaults()["retention.ms"] == 1
    assert resolver.topic_defaults()["segment.bytes"] == 2_097_152
    assert resolver.value("num.partitions") == 1
    assert resolver.dynamic_default == {"log.segment.bytes": "2097152", "some.plugin": "x"}
    assert resolver.dynamic_broker == {}
    assert sorted(resolver.refused) == ["log.retention.ms", "log.roll.ms", "log.segment.bytes", "num.partitions"]


def test_what_this_version_does_not_take_of_a_listener_is_left_out_too() -> None:
    resolver = ConfigResolver({})
    name = "listener.name.plaintext.max.connection.creation.rate"
    resolver.update(dynamic_default={name: "0"}, dynamic_broker={})
    assert list(resolver.refused) == [name]
    assert resolver.effective == {}


def test_of_two_layers_that_do_not_fit_the_stronger_one_is_left_out() -> None:
    resolver = ConfigResolver({})
    hosts, limit = "max.connections.per.ip.overrides", "max.connections.per.ip"
    resolver.update(dynamic_default={hosts: "10.0.0.1:5", limit: "0"}, dynamic_broker={hosts: ""})
    assert list(resolver.refused) == [hosts]
    assert resolver.effective == {hosts: "10.0.0.1:5", limit: "0"}


def test_origins_are_listed_from_the_strongest() -> None:
    resolver = ConfigResolver({"log.segment.bytes": "2097152"})
    resolver.update(dynamic_default={"log.segment.bytes": "3145728"}, dynamic_broker={"log.segment.bytes": "4194304"})
    assert resolver.origins("log.segment.bytes") == [
        Origin("log.segment.bytes", "4194304", BROKER),
        Origin("log.segment.bytes", "3145728", CLUSTER),
        Origin("log.segment.bytes", "2097152", STATIC),
        Origin("log.segment.bytes", "1073741824", DEFAULT),
    ]


def test_defaults_of_whatever_starts_the_broker_are_defaults_and_anything_set_wins() -> None:
    defaults = {"offsets.topic.replication.factor": "1", "log.retention.ms": "5"}
    resolver = ConfigResolver({}, defaults=defaults)
    assert resolver.value("offsets.topic.replication.factor") == 1
    assert resolver.origins("offsets.topic.replication.factor") == [
        Origin("offsets.topic.replication.factor", "1", ConfigSource.DEFAULT_CONFIG)
    ]
    assert resolver.topic_source("retention.ms", {}) is ConfigSource.DEFAULT_CONFIG
    assert resolver.topic_defaults()["retention.ms"] == 5
    resolver = ConfigResolver({"offsets.topic.replication.factor": "2", "log.retention.hours": "1"}, defaults=defaults)
    assert resolver.value("offsets.topic.replication.factor") == 2
    assert [it.text for it in resolver.origins("offsets.topic.replication.factor")] == ["2", "1"]
    assert resolver.topic_defaults()["retention.ms"] == 3_600_000


def test_a_weaker_synonym_alone_is_not_an_origin() -> None:
    resolver = ConfigResolver({"log.retention.hours": "100"})
    assert resolver.origins("log.retention.ms") == []
    assert resolver.origins("log.retention.hours") == [
        Origin("log.retention.hours", "100", STATIC),
        Origin("log.retention.hours", "168", DEFAULT),
    ]


def test_source_of_a_topic_value_sees_through_synonyms() -> None:
    resolver = ConfigResolver({"log.retention.hours": "100"})
    assert resolver.topic_source("retention.ms", {}) is STATIC
    assert resolver.topic_source("segment.ms", {}) is DEFAULT
    assert resolver.topic_source("retention.ms", {"retention.ms": "1"}) is ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_a_recorded_text_that_is_refused_today_leaves_the_default() -> None:
    values = ConfigResolver({}).topic_values({"segment.bytes": "1", "no.such.config": "x"})
    assert values["segment.bytes"] == 1 << 30
    assert "no.such.config" not in values


def test_a_dynamic_value_silences_its_synonyms_below() -> None:
    resolver = ConfigResolver({"log.retention.hours": "100"})
    resolver.update(dynamic_default={"log.retention.ms": "5"}, dynamic_broker={})
    assert resolver.value("log.retention.hours") == 168
    assert resolver.value("log.retention.ms") == 5
