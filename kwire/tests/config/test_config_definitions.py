"""Parsing and checks of configuration values, and the tables, as read off Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from kwire.config.definition import ConfigError, ConfigType, Scope, Value, parse_text, to_text
from kwire.config.listeners import parse_listeners, parse_protocol_map
from kwire.config.tables.broker import HONOURED_CONFIGS, broker_config, broker_configs, synonyms
from kwire.config.tables.topic import TOPIC_CONFIGS

NOT_INT = "Not a number of type INT (from -2147483648 to 2147483647)"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 2097152 ", 2_097_152),
        ("segment.bytes", "+2097152", 2_097_152),
        ("segment.bytes", "1048576", 1_048_576),
        ("retention.ms", "-1", -1),
        ("retention.ms", "9223372036854775807", 2**63 - 1),
        ("retention.bytes", "-2", -2),
        ("preallocate", " True ", True),
        ("preallocate", "FALSE", False),
        ("min.cleanable.dirty.ratio", " .5 ", 0.5),
        ("min.cleanable.dirty.ratio", "1e-3", 0.001),
        ("min.cleanable.dirty.ratio", "0.5f", 0.5),
        ("compression.type", " gzip ", "gzip"),
        ("compression.gzip.level", "-1", -1),
        ("compression.zstd.level", "-131072", -131072),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "compact,compact", ("compact",)),
        ("cleanup.policy", "", ()),
        ("leader.replication.throttled.replicas", " 0:1 , 1:2 ", ("0:1", "1:2")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("internal.segment.bytes", "1000", 1000),
    ],
)
def test_accepted_value(name: str, text: str, value: Value) -> None:
    assert TOPIC_CONFIGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("segment.bytes", "", f"Invalid value '' for configuration segment.bytes: {NOT_INT}"),
        ("segment.bytes", "abc", f"Invalid value abc for configuration segment.bytes: {NOT_INT}"),
        (
            "segment.bytes",
            "1048575",
            "Invalid value 1048575 for configuration segment.bytes: Value must be at least 1048576",
        ),
        ("segment.bytes", "2147483648", f"Invalid value 2147483648 for configuration segment.bytes: {NOT_INT}"),
        ("segment.bytes", "2_097_152", f"Invalid value 2_097_152 for configuration segment.bytes: {NOT_INT}"),
        ("segment.bytes", "0x10", f"Invalid value 0x10 for configuration segment.bytes: {NOT_INT}"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            "retention.ms",
            "9223372036854775808",
            "Invalid value 9223372036854775808 for configuration retention.ms: Not a number of type LONG "
            "(from -9223372036854775808 to 9223372036854775807)",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1.1",
            "Invalid value 1.1 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1,5",
            "Invalid value 1,5 for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE (such as 0.5)",
        ),
        (
            "compression.type",
            "GZIP",
            "Invalid value GZIP for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "cleanup.policy",
            "delete,foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "cleanup.policy",
            "compact,",
            "Configuration 'cleanup.policy' values must not be empty: remove the extra comma",
        ),
        (
            "compression.gzip.level",
            "10",
            "Invalid value 10 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "leader.replication.throttled.replicas",
            "0:1,*",
            "Invalid value 0:1,* for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' "
            "or a list of replicas as partition:broker, such as 0:1,0:2",
        ),
    ],
)
def test_the_error_for_a_refused_value_names_what_is_wrong(name: str, text: str, refusal: str) -> None:
    with pytest.raises(ConfigError) as error:
        TOPIC_CONFIGS[name].parse(text)
    assert str(error.value) == refusal


def test_a_number_of_a_million_digits_is_refused_quickly() -> None:
    with pytest.raises(ConfigError) as error:
        parse_text("retention.ms", ConfigType.LONG, "1" * 1_000_000)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (-1, "-1"),
        (("a", "b"), "a,b"),
        ((), ""),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1234567.5, "1234567.5"),
        (12345678.0, "1.2345678E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-0.25, "-0.25"),
    ],
)
def test_values_are_written_as_java_writes_them(value: Value, text: str | None) -> None:
    assert to_text(value) == text


def test_topic_table_is_kafkas_with_one_of_its_next_version() -> None:
    described = [name for name, definition in TOPIC_CONFIGS.items() if not definition.internal]
    assert len(described) == 33 + 1
    assert all(TOPIC_CONFIGS[name].documentation for name in described)


def test_defaults_pass_their_own_checks() -> None:
    for table in (TOPIC_CONFIGS, broker_configs()):
        for definition in table.values():
            text = to_text(definition.default)
            if text is not None and definition.name != "process.roles":
                assert definition.parse(text) == definition.default, definition.name


def test_every_broker_synonym_of_a_topic_config_is_honoured_and_may_change_while_running() -> None:
    for definition in TOPIC_CONFIGS.values():
        for name, _ in definition.broker_synonyms:
            assert name in HONOURED_CONFIGS, name
            strongest = synonyms(name)[0]
            assert HONOURED_CONFIGS[strongest].scope is Scope.CLUSTER_WIDE, name


def test_names_without_effect_are_known() -> None:
    definition = broker_config("num.network.threads")
    assert definition is not None
    assert not definition.has_effect
    assert broker_config("no.such.name") is None


def test_passwords_are_sensitive() -> None:
    definition = broker_config("ssl.keystore.password")
    assert definition is not None
    assert definition.sensitive
    assert definition.parse(" secret ") == " secret "


def test_listeners_are_parsed() -> None:
    protocols = parse_protocol_map("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,Inside:plaintext")
    listeners = parse_listeners(
        "listeners",
        ["plaintext://:9092", "INSIDE://[::1]:0", "CONTROLLER://localhost:9093"],
        protocols,
        controllers=["CONTROLLER"],
    )
    assert [(it.name, it.host, it.port, it.security_protocol) for it in listeners] == [
        ("PLAINTEXT", "", 9092, "PLAINTEXT"),
        ("INSIDE", "::1", 0, "PLAINTEXT"),
    ]
    assert [str(it) for it in listeners] == ["PLAINTEXT://:9092", "INSIDE://[::1]:0"]
    assert listeners[0].is_wildcard


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("localhost:9092", "a listener is written name://host:port"),
        ("PLAINTEXT://localhost:70000", "from 0 to 65535"),
        ("FOO://localhost:9092", "FOO a protocol in listener.security.protocol.map"),
    ],
)
def test_listener_refusals(text: str, refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        parse_listeners("listeners", [text], parse_protocol_map(""))
