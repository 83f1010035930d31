"""ServerConfig: the result of the file, the flags and the defaults together."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import attrs
import pytest

import kwire
from kwire.config.server import ConfigError, ServerConfig, load_config

KAFKAS_OWN_FILE = """
# the settings of Kafka's config/server.properties
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_defaults_suit_the_person_who_just_installed_it() -> None:
    config = load_config()
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.advertised_listeners == ()
    assert config.node_id == 1
    assert config.auto_create_topics_enable
    assert config.group_initial_rebalance_delay_ms == 0
    assert config.metadata_log_dir == "./data"
    assert config.num_partitions == 1


def test_kafkas_own_file_is_taken_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = load_config(KAFKAS_OWN_FILE)
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.metadata_log_dir == "/tmp/kraft-combined-logs"
    assert len(caplog.messages) == 1
    assert "have no effect in kwire: controller.quorum.bootstrap.servers, num.io.threads" in caplog.messages[0]


def test_a_setting_wins_over_the_file_and_a_flag_over_both() -> None:
    config = load_config(
        "num.partitions=2\nlog.retention.hours=3\nlisteners=PLAINTEXT://:1\nlog.dirs=/file",
        settings=["num.partitions=4", "listeners=PLAINTEXT://:2"],
        listen=["127.0.0.1:0"],
        data_dirs=["/flag,with a comma"],
    )
    assert config.num_partitions == 4
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:0"]
    assert config.log_dirs == ("/flag,with a comma",)


INSIDE_AND_OUTSIDE = [
    "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
]


def test_brokers_reach_each_other_at_the_listener_that_is_named_for_it() -> None:
    assert load_config().inter_broker_listener_name == "PLAINTEXT"
    assert load_config(settings=["security.inter.broker.protocol=PLAINTEXT"]).inter_broker_listener_name == "PLAINTEXT"
    named = load_config(settings=[*INSIDE_AND_OUTSIDE, "inter.broker.listener.name=outside"])
    assert named.inter_broker_listener_name == "OUTSIDE"
    assert load_config(settings=INSIDE_AND_OUTSIDE).inter_broker_listener_name == "INSIDE"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"], "set one of them"),
        (["inter.broker.listener.name=OTHER"], "'OTHER', and the advertised listeners are PLAINTEXT"),
        (["security.inter.broker.protocol=SSL"], "'SSL', and the advertised listeners are PLAINTEXT"),
        (["security.inter.broker.protocol=TLS"], "security.inter.broker.protocol"),
        (
            [*INSIDE_AND_OUTSIDE, "advertised.listeners=INSIDE://h:1", "inter.broker.listener.name=OUTSIDE"],
            "'OUTSIDE', and the advertised listeners are INSIDE",
        ),
    ],
)
def test_an_inter_broker_listener_that_is_not_advertised_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(settings=settings)


def test_several_addresses_get_names_of_their_own() -> None:
    config = load_config(
        listen=["127.0.0.1:0", "[::1]:0", "SASL_SSL2://127.0.0.2:0"],
        settings=["listener.security.protocol.map=SASL_SSL2:PLAINTEXT"],
    )
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT", "PLAINTEXT_2", "SASL_SSL2"]


def test_defaults_of_topic_configurations_without_effect_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_config("log.preallocate=true\nlog.retention.hours=3")
    assert caplog.messages == ["these configurations have no effect in kwire: log.preallocate"]


def test_what_has_an_effect_in_a_cluster_is_not_reported_as_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_config("unclean.leader.election.enable=true")
    assert caplog.messages == []


def test_every_field_is_read_by_somebody() -> None:
    """A setting that is honoured has a reader; one without a reader belongs to `broker_without_effect`."""
    package = Path(kwire.__file__).parent
    files = [
        path
        for path in package.rglob("*.py")
        if path != package / "config.py" and "tests" not in path.relative_to(package).parts
    ]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in files)))
    assert {field.name for field in attrs.fields(ServerConfig)} - words == set()


def test_unknown_names_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = load_config("num.partitons=3\nretention.ms=5\nour.plugin=x")
    assert caplog.messages == [
        "unknown configurations: 'num.partitons' (did you mean num.partitions?), 'our.plugin', "
        "'retention.ms' (did you mean log.retention.ms?)"
    ]
    assert config.num_partitions == 1


def test_broker_id_is_another_word_for_node_id() -> None:
    assert load_config("broker.id=0").node_id == 0
    assert load_config("broker.id=7\nnode.id=7").node_id == 7
    assert load_config("node.id=0").node_id == 0
    with pytest.raises(ConfigError, match=r"node\.id is 1 and broker\.id is 2"):
        load_config("node.id=1\nbroker.id=2")


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("num.partitions=0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("node.id=-1", "Invalid value -1 for configuration node.id: Value must be at least 0"),
        (
            "log.segment.bytes=1000",
            "Invalid value 1000 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            "auto.create.topics.enable=maybe",
            "Invalid value maybe for configuration auto.create.topics.enable: Expected value to be",
        ),
        ("listeners=PLAINTEXT://:9092,PLAINTEXT://:9093", "several listeners with the same name: PLAINTEXT, PLAINTEXT"),
        ("listeners=CONTROLLER://:9092\ncontroller.listener.names=CONTROLLER", "listeners has no listener for clients"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "clients cannot connect to 0.0.0.0"),
        ("advertised.listeners=SSL://host:9092", "SSL://host:9092, whose name is not in listeners: PLAINTEXT"),
        (
            "group.min.session.timeout.ms=10\ngroup.max.session.timeout.ms=9",
            "must be less than or equal to group.max.session.timeout.ms, which is 9; it is 10",
        ),
        ("max.connections=0", "Invalid value 0 for configuration max.connections: nobody could connect"),
        ("max.connections.per.ip=0", "can be zero only if max.connections.per.ip.overrides is set"),
        ("queued.max.requests=0", "Invalid value 0 for configuration queued.max.requests"),
        ("principal.builder.class=a.B", "a.B for configuration principal.builder.class: kwire loads no classes"),
        ("client.quota.callback.class=a.B", "kwire loads no classes of Java: remove it"),
        ("create.topic.policy.class.name=a.B", "kwire loads no classes of Java: remove it"),
        ("alter.config.policy.class.name=a.B", "kwire loads no classes of Java: remove it"),
        ("ssl.engine.factory.class=a.B", "kwire loads no classes of Java: remove it, or set it to org.apache"),
    ],
)
def test_refusals_are_one_clear_line(text: str, refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal) as error:
        load_config(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("settings", "listen"), [(["num.partitions"], []), (["=3"], []), ([], ["9092"])])
def test_malformed_flags_are_refused(settings: list[str], listen: list[str]) -> None:
    with pytest.raises(ConfigError, match="write (name=value|host:port)"):
        load_config(settings=settings, listen=listen)
