"""Responses to changes of configurations, and the words that scripts look for in the refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

from testkit.raw.client import RawClient
from testkit.raw.configs import ALL_BROKERS, BROKER, GROUP, METRICS, SET, THIS_BROKER, TOPIC, altered, change, described
from testkit.servers.brokers import Broker

E = ErrorCode
DEFAULT_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG, GROUP_CONFIG = 5, 3, 8
LONG = 5
PER_LISTENER = [
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
]


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


def refused(client: RawClient, resource: int, name: str, config: str, value: str) -> tuple[ErrorCode, str]:
    return altered(client, resource, name, config, value, validate_only=True)


def create(client: RawClient, name: str, configs: dict[str, str | None]) -> tuple[ErrorCode, str]:
    """The answer to the creation of a topic, which is validated only."""
    wanted = [CreatableTopicConfig(config, value) for config, value in configs.items()]
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=wanted)], validate_only=True)
    (answer,) = client.call(request, 7).topics
    return ErrorCode(answer.error_code), answer.error_message or ""


TOPIC_REFUSALS = [
    ("retention.mss", "1", "Unknown topic config name: retention.mss"),
    ("log.retention.ms", "1", "Unknown topic config name: log.retention.ms"),
    ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    ("segment.bytes", "1000", "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576"),
    (
        "min.cleanable.dirty.ratio",
        "1.5",
        "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "min.cleanable.dirty.ratio",
        "x",
        "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
    ),
    (
        "preallocate",
        "yes",
        "Invalid value yes for configuration preallocate: Expected value to be either true or false",
    ),
    (
        "compression.type",
        "GZIP",
        "Invalid value GZIP for configuration compression.type: String must be one of: uncompressed, zstd,",
    ),
    (
        "compression.gzip.level",
        "10",
        "Invalid value 10 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        "cleanup.policy",
        "foo",
        "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    ("cleanup.policy", "compact,", "Configuration 'cleanup.policy' values must not be empty"),
    (
        "leader.replication.throttled.replicas",
        "0:1,*",
        "leader.replication.throttled.replicas must be the literal '*' or a list of replicas",
    ),
    ("remote.storage.enable", "true", "Tiered Storage functionality is disabled"),
]


@pytest.mark.parametrize(("config", "value", "words"), TOPIC_REFUSALS)
def test_a_topic_with_such_a_config_is_not_created(
    client: RawClient, unique: Callable[[str], str], config: str, value: str, words: str
) -> None:
    code, message = create(client, unique("topic"), {config: value})
    assert (code, words in message) == (E.INVALID_CONFIG, True), message


@pytest.mark.parametrize(
    ("config", "value", "words"), [it for it in TOPIC_REFUSALS if it[0] != "remote.storage.enable"]
)
def test_a_topic_does_not_get_such_a_config(client: RawClient, topic: str, config: str, value: str, words: str) -> None:
    code, message = refused(client, TOPIC, topic, config, value)
    assert (code, words in message) == (E.INVALID_CONFIG, True), message


def test_lags_of_compaction_that_contradict_each_other_are_refused(
    client: RawClient, unique: Callable[[str], str]
) -> None:
    code, message = create(client, unique("topic"), {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
    assert code == E.INVALID_CONFIG
    assert "min.compaction.lag.ms (10) > max.compaction.lag.ms (5)" in message


def test_a_topic_with_a_config_of_no_value_is_not_created(client: RawClient, unique: Callable[[str], str]) -> None:
    code, message = create(client, unique("topic"), {"retention.ms": None})
    assert code == E.INVALID_CONFIG
    assert "Null value not supported for" in message
    assert "retention.ms" in message


@pytest.mark.parametrize("name", [THIS_BROKER, ALL_BROKERS])
@pytest.mark.parametrize(
    ("config", "value", "words"),
    [
        ("num.partitions", "2", "Cannot update these configs dynamically: [num.partitions]"),
        ("auto.create.topics.enable", "false", "Cannot update these configs dynamically: [auto.create.topics.enable]"),
        ("log.retention.hours", "5", "Cannot update these configs dynamically: [log.retention.hours]"),
        ("group.max.size", "5", "Cannot update these configs dynamically: [group.max.size]"),
        ("log.cleaner.enable", "false", "Cannot update these configs dynamically: [log.cleaner.enable]"),
        (
            "log.segment.bytes",
            "1",
            "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        ("log.retention.ms", "abc", "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"),
        ("log.retention.ms", "0", "must be unlimited (-1) or"),
        ("max.connections", "-1", "Invalid value -1 for configuration max.connections: Value must be at least 0"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "log.cleaner.dedupe.buffer.size"),
        ("num.io.threads", "17", "value should not be greater than double the current value 8"),
        ("num.io.threads", "3", "Dynamic thread count update validation failed for num.io.threads=3"),
        ("leader.replication.throttled.rate", "-1", "Value must be at least 0"),
        ("follower.replication.throttled.rate", "x", "Not a number of type LONG"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "-1", "Value must be at least 0"),
    ],
)
def test_a_broker_does_not_get_such_a_config(client: RawClient, name: str, config: str, value: str, words: str) -> None:
    code, message = refused(client, BROKER, name, config, value)
    assert (code, words in message) == (E.INVALID_REQUEST, True), message


def test_what_is_described_as_read_only_is_refused_and_nothing_else(client: RawClient) -> None:
    configs = described(client, BROKER, THIS_BROKER)
    fixed = {name for name, config in configs.items() if config.read_only}
    refusals = {
        name: refused(client, BROKER, THIS_BROKER, name, config.value or "1") for name, config in configs.items()
    }
    words = "Cannot update these configs dynamically: [{}]"
    assert len(fixed) > 200
    assert {name for name, (_, message) in refusals.items() if words.format(name) in message} == fixed
    assert {refusals[name][0] for name in fixed} == {E.INVALID_REQUEST}


@pytest.mark.parametrize("config", PER_LISTENER)
def test_keys_and_certificates_are_for_one_listener(client: RawClient, config: str) -> None:
    for name in (THIS_BROKER, ALL_BROKERS):
        code, message = refused(client, BROKER, name, config, "PEM")
        assert code == E.INVALID_REQUEST
        assert "can be dynamically updated only per-listener using the listener prefix" in message
    prefixed = f"listener.name.elsewhere.{config}"
    assert refused(client, BROKER, THIS_BROKER, prefixed, "PEM") == (E.NONE, "")
    code, message = refused(client, BROKER, ALL_BROKERS, prefixed, "PEM")
    assert code == E.INVALID_REQUEST
    assert f"Cannot update these configs at default cluster level, broker id must be specified: [{prefixed}]" in message


@pytest.mark.parametrize(
    ("config", "value"),
    [("ssl.cipher.suites", "a"), ("ssl.client.auth", "none"), ("sasl.enabled.mechanisms", "PLAIN")],
)
def test_other_security_configs_are_for_one_broker(client: RawClient, config: str, value: str) -> None:
    assert refused(client, BROKER, THIS_BROKER, config, value) == (E.NONE, "")
    code, message = refused(client, BROKER, ALL_BROKERS, config, value)
    assert code == E.INVALID_REQUEST
    assert f"broker id must be specified: [{config}]" in message


@pytest.mark.parametrize("config", ["max.connections", "max.connection.creation.rate", "num.network.threads"])
def test_limits_of_a_listener_may_be_common_to_all_brokers(client: RawClient, config: str) -> None:
    assert refused(client, BROKER, ALL_BROKERS, f"listener.name.elsewhere.{config}", "5") == (E.NONE, "")


@pytest.mark.parametrize(
    "config",
    [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
@pytest.mark.parametrize("name", [THIS_BROKER, ALL_BROKERS])
def test_throttles_may_be_set_for_one_broker_and_for_all(client: RawClient, name: str, config: str) -> None:
    assert config not in described(client, BROKER, THIS_BROKER)
    change(client, BROKER, name, config, "1000000")
    try:
        found = described(client, BROKER, THIS_BROKER)[config]
        assert (found.config_type, found.read_only, found.is_sensitive) == (LONG, False, False)
        assert (found.synonyms[0].name, found.synonyms[0].value) == (config, "1000000")
    finally:
        change(client, BROKER, name, config, None)
    assert config not in described(client, BROKER, THIS_BROKER)


@pytest.mark.parametrize("config", ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"])
@pytest.mark.parametrize("value", ["*", "0:1", "0:1,0:2", ""])
def test_throttled_replicas_may_be_set_for_a_topic(client: RawClient, topic: str, config: str, value: str) -> None:
    assert refused(client, TOPIC, topic, config, value) == (E.NONE, "")


@pytest.mark.parametrize(("name", "words"), [("2", "expected 1, but received 2"), ("x", "must be an integer")])
def test_a_change_for_another_broker_is_refused(client: RawClient, name: str, words: str) -> None:
    code, message = refused(client, BROKER, name, "log.retention.ms", "1000")
    assert (code, words in message) == (E.INVALID_REQUEST, True), message


@pytest.mark.parametrize(
    ("config", "value", "words"),
    [
        ("nonsense", "1", "Unknown group config name: nonsense"),
        (
            "consumer.session.timeout.ms",
            "1",
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "consumer.session.timeout.ms",
            "999999",
            "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (
            "share.isolation.level",
            "x",
            "Invalid value x for configuration share.isolation.level: String must be one of: read_committed,",
        ),
        ("share.auto.offset.reset", "x", "Invalid value x for configuration share.auto.offset.reset"),
    ],
)
def test_a_group_does_not_get_such_a_config(client: RawClient, group: str, config: str, value: str, words: str) -> None:
    code, message = refused(client, GROUP, group, config, value)
    assert (code, words in message) == (E.INVALID_CONFIG, True), message


def test_as_many_standby_replicas_as_the_broker_allows_are_taken(client: RawClient, group: str) -> None:
    assert refused(client, GROUP, group, "streams.num.standby.replicas", "2") == (E.NONE, "")


@pytest.mark.parametrize(
    ("config", "value", "default"),
    [("share.auto.offset.reset", "earliest", "latest"), ("share.renew.acknowledge.enable", "false", "true")],
)
def test_the_default_of_a_groups_config_is_among_its_synonyms(
    client: RawClient, group: str, config: str, value: str, default: str
) -> None:
    change(client, GROUP, group, config, value)
    found = described(client, GROUP, group)[config]
    assert [(it.name, it.value, it.source) for it in found.synonyms] == [
        (config, value, GROUP_CONFIG),
        (config, default, DEFAULT_CONFIG),
    ]


@pytest.mark.parametrize(
    ("config", "value", "code", "words"),
    [
        ("nonsense", "1", E.INVALID_REQUEST, "Unknown client metrics configuration: nonsense"),
        ("interval.ms", "1", E.INVALID_REQUEST, "Invalid value 1 for interval.ms, interval must be between 100 and"),
        ("match", "foo=1", E.INVALID_CONFIG, "Illegal client matching pattern: foo=1"),
    ],
)
def test_a_subscription_does_not_get_such_a_config(
    client: RawClient, config: str, value: str, code: ErrorCode, words: str
) -> None:
    answered, message = refused(client, METRICS, "subscription", config, value)
    assert (answered, words in message) == (code, True), message


@pytest.mark.parametrize("resource", [TOPIC, GROUP])
def test_only_brokers_have_configs_in_common(client: RawClient, resource: int) -> None:
    code, message = altered(client, resource, "", "retention.ms", "1")
    assert code == E.INVALID_REQUEST
    assert "resources are not allowed" in message


def test_a_config_that_is_no_list_cannot_be_appended_to(client: RawClient, topic: str) -> None:
    append = SET + 2
    code, message = altered(client, TOPIC, topic, "retention.ms", "1", operation=append)
    assert code == E.INVALID_CONFIG
    assert "Can't APPEND to key retention.ms because its type is not LIST" in message


def test_a_resource_type_that_there_is_not_is_refused(client: RawClient) -> None:
    code, message = altered(client, 3, "x", "retention.ms", "1")
    assert code == E.INVALID_REQUEST
    assert "Unknown resource type 3" in message


def test_min_insync_replicas_is_the_same_for_all_brokers(client: RawClient, topic: str) -> None:
    """Eligible leader replicas need that (KIP-966)."""
    name = "min.insync.replicas"
    for resource, of in ((BROKER, ALL_BROKERS), (BROKER, THIS_BROKER), (TOPIC, topic)):
        found = described(client, resource, of)[name]
        assert found.config_source == DYNAMIC_DEFAULT_BROKER_CONFIG
        assert found.synonyms[0].source == DYNAMIC_DEFAULT_BROKER_CONFIG
    given = described(client, BROKER, ALL_BROKERS)[name].value
    assert given is not None
    for of, value, words in (
        (THIS_BROKER, given, "Broker-level min.insync.replicas cannot be altered while ELR is enabled"),
        (THIS_BROKER, None, "Broker-level min.insync.replicas cannot be altered while ELR is enabled"),
        (ALL_BROKERS, None, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled"),
    ):
        code, message = altered(client, BROKER, of, name, value)
        assert (code, words in message) == (E.INVALID_CONFIG, True), message
    assert altered(client, BROKER, ALL_BROKERS, name, given)[0] == E.NONE


def test_a_new_topic_has_min_insync_replicas_of_all_brokers(client: RawClient, unique: Callable[[str], str]) -> None:
    request = CreateTopicsRequest([CreatableTopic(unique("topic"), 1, 1)], validate_only=True)
    (answer,) = client.call(request, 7).topics
    [found] = [it for it in answer.configs or () if it.name == "min.insync.replicas"]
    assert found.config_source == DYNAMIC_DEFAULT_BROKER_CONFIG
