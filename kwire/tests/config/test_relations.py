"""Settings that depend on each other. Apache Kafka's refusals are in compat_tests/test_config_boundaries.py."""

from __future__ import annotations

import pytest

from kwire.config.relations import BROKER_RELATIONS, group_violations, violations
from kwire.config.resolution import ConfigResolver
from kwire.config.tables.broker import broker_config


def test_defaults_fit_each_other() -> None:
    names = {name for relation in BROKER_RELATIONS for name in relation.names}
    definitions = {name: broker_config(name) for name in names}
    assert [name for name, definition in definitions.items() if definition is None] == []
    for relation in BROKER_RELATIONS:
        assert relation.violation(ConfigResolver({}).value) is None, relation.names


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (
            {"group.share.heartbeat.interval.ms": "7000", "group.share.max.heartbeat.interval.ms": "6000"},
            ("group.share.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
        ),
        (
            {"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"},
            ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ),
        ({"queued.max.request.bytes": "100"}, ("queued.max.request.bytes", "socket.request.max.bytes")),
        ({"replica.fetch.wait.max.ms": "30001"}, ("replica.socket.timeout.ms", "replica.fetch.wait.max.ms")),
        ({"max.connections.per.ip": "0"}, ("max.connections.per.ip", "max.connections.per.ip.overrides")),
        ({"log.cleaner.threads": "200"}, ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads")),
    ],
)
def test_what_does_not_fit_is_reported_with_both_names(texts: dict[str, str], names: tuple[str, str]) -> None:
    violation = violations(texts)[0]
    assert violation.names == names
    assert [name for name in names if name not in violation.message] == []


def test_some_do_not_fit_only_where_they_change() -> None:
    texts = {"log.local.retention.ms": "20", "log.retention.ms": "10", "metric.reporters": "a.B"}
    assert violations(texts) == []
    assert [it.names[0] for it in violations(texts, at_a_change=True)] == ["log.local.retention.ms", "metric.reporters"]


def test_a_default_that_is_not_kafkas_stands_in_the_way_of_no_minimum() -> None:
    resolver = ConfigResolver({"group.consumer.min.assignment.interval.ms": "500"})
    assert violations(resolver.static) == []
    assert resolver.of_group({}).values["consumer.assignment.interval.ms"] == 500


def test_a_groups_own_setting_has_to_fit_the_brokers() -> None:
    broker = ConfigResolver(
        {"group.streams.heartbeat.interval.ms": "50000", "group.streams.max.session.timeout.ms": "1"}
    )
    own = {"streams.session.timeout.ms": 45_000}
    assert [(it.names, it.message) for it in group_violations(own, broker.value)] == [
        (
            ("streams.session.timeout.ms",),
            "streams.session.timeout.ms must be less than or equal to group.streams.max.session.timeout.ms, "
            "which is 1; it is 45000",
        ),
        (
            ("streams.session.timeout.ms", "streams.heartbeat.interval.ms"),
            "streams.session.timeout.ms must be greater than streams.heartbeat.interval.ms, "
            "which is 50000; it is 45000",
        ),
    ]


def test_a_group_whose_settings_do_not_fit_has_the_brokers() -> None:
    static = {"group.consumer.min.session.timeout.ms": "500", "group.consumer.min.heartbeat.interval.ms": "500"}
    resolver = ConfigResolver(static)
    followed = resolver.of_group({"consumer.session.timeout.ms": "600", "consumer.heartbeat.interval.ms": "600"})
    assert followed.values["consumer.session.timeout.ms"] == 45_000
    assert followed.values["consumer.heartbeat.interval.ms"] == 5_000
    assert len(followed.ignored) == 1


def test_a_groups_setting_outside_of_the_brokers_bounds_is_limited_to_them() -> None:
    followed = ConfigResolver({}).of_group({"share.session.timeout.ms": "99999", "streams.num.standby.replicas": "9"})
    assert followed.values["share.session.timeout.ms"] == 60_000
    assert followed.values["streams.num.standby.replicas"] == 2
    assert followed.ignored == ()
