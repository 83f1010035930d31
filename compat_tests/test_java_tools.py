"""Kafka's own command line tools, unmodified."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition

from devtools.apache_kafka import run_tool
from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients.confluent import consuming, error_of_reading, fill, offsets_of, read_all, take, values_of
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.raw import nodes
from testkit.raw.groups import CONSUMER
from testkit.servers import brokers
from testkit.servers.brokers import Broker

QUICK = ("--command-property", "fetch.max.wait.ms=50")


@pytest.fixture
def at(broker: Broker) -> tuple[str, str]:
    return ("--bootstrap-server", broker.bootstrap)


def test_topics_are_created_described_altered_listed_and_deleted(
    broker: Broker, java: JavaHost, at: tuple[str, str], unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    config = ("--config", "retention.ms=1000000")
    created = java.succeed(tools.TOPICS, *at, "--create", "--topic", topic, "--partitions", "2", *config)
    assert f"Created topic {topic}." in created.out
    nodes.wait_until_led(broker.bootstrap, topic, 2)
    described = java.succeed(tools.TOPICS, *at, "--describe", "--topic", topic).lines
    replicas = len(brokers.NODES)
    summary = rf"PartitionCount: 2\s+ReplicationFactor: {replicas}\s+Configs: .*retention.ms=1000000"
    assert re.search(summary, described[0])
    assert re.search(r"Partition: 1\s+Leader: \d+\s+Replicas: \d+(,\d+)*\s+Isr: \d+", described[2])
    java.succeed(tools.TOPICS, *at, "--alter", "--topic", topic, "--partitions", "3")
    nodes.wait_until_led(broker.bootstrap, topic, 3)
    assert "PartitionCount: 3" in java.succeed(tools.TOPICS, *at, "--describe", "--topic", topic).out
    assert topic in java.succeed(tools.TOPICS, *at, "--list").lines
    java.succeed(tools.TOPICS, *at, "--delete", "--topic", topic)
    nodes.wait_until_gone(broker.bootstrap, topic)
    gone = java.run(tools.TOPICS, *at, "--describe", "--topic", topic)
    assert gone.code == 1
    assert re.search(rf"topic command : .*'{topic}'", gone.out + gone.err)


def test_a_topic_that_cannot_be_created_is_an_error(java: JavaHost, at: tuple[str, str], topic: str) -> None:
    twice = java.run(tools.TOPICS, *at, "--create", "--topic", topic)
    assert twice.code == 1
    assert re.search(rf"topic command : .*'{topic}'", twice.out + twice.err)
    java.succeed(tools.TOPICS, *at, "--create", "--topic", topic, "--if-not-exists")
    too_many = str(len(brokers.NODES) + 1)
    unclear = java.run(tools.TOPICS, *at, "--create", "--topic", "r", "--replication-factor", too_many)
    assert unclear.code == 1
    assert re.search(rf"topic command : .*replication factor .*\b{too_many}\b", unclear.out + unclear.err)
    assert "r" not in java.succeed(tools.TOPICS, *at, "--list").lines


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_console_consumer_reads_what_the_console_producer_wrote(
    java: JavaHost, at: tuple[str, str], topic: str, codec: str
) -> None:
    lines = [f"a:{number},b:x\tkey {number}\tvalue {number}" for number in range(20)]
    properties = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    options = ("--topic", topic, "--compression-codec", codec, *properties)
    java.succeed(tools.CONSOLE_PRODUCER, *at, *options, stdin="\n".join(lines) + "\n")
    shown = [
        part
        for name in ("key", "headers", "offset", "partition")
        for part in ("--formatter-property", f"print.{name}=true")
    ]
    limits = ("--from-beginning", "--max-messages", "20", "--timeout-ms", "20000", *QUICK)
    read = java.succeed(tools.CONSOLE_CONSUMER, *at, "--topic", topic, *limits, *shown)
    assert read.lines == [
        f"Partition:0\tOffset:{number}\ta:{number},b:x\tkey {number}\tvalue {number}" for number in range(20)
    ]


def test_the_console_consumer_reads_from_an_offset_and_in_a_group(
    broker: Broker, java: JavaHost, at: tuple[str, str], topic: str, group: str
) -> None:
    fill(broker.bootstrap, topic, numbered(10))
    some = (*QUICK, "--topic", topic, "--timeout-ms", "20000", "--max-messages")
    read = java.succeed(tools.CONSOLE_CONSUMER, *at, *some, "3", "--partition", "0", "--offset", "7")
    assert [line.encode() for line in read.lines] == numbered(10)[7:]
    for expected in (numbered(10)[:4], numbered(10)[4:8]):  # the second continues where the first committed
        read = java.succeed(tools.CONSOLE_CONSUMER, *at, *some, "4", "--from-beginning", "--group", group)
        assert [line.encode() for line in read.lines] == expected


def test_the_verifiable_producer_is_acknowledged(broker: Broker, at: tuple[str, str], topic: str) -> None:
    # In a process of its own: it gets the last acknowledgements while the process ends.
    result = run_tool(tools.VERIFIABLE_PRODUCER, *at, "--topic", topic, "--max-messages", "50", "--acks", "-1")
    events = [json.loads(line) for line in result.stdout.splitlines() if line.strip()]
    acknowledged = [event["offset"] for event in events if event["name"] == "producer_send_success"]
    assert acknowledged == list(range(50))
    records = read_all(broker.bootstrap, topic, 50)
    assert values_of(records) == [str(number).encode() for number in range(50)]
    assert offsets_of(records) == acknowledged


def test_configs_of_topics_and_brokers_are_described_and_altered(
    java: JavaHost, at: tuple[str, str], topic: str
) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    java.succeed(tools.CONFIGS, *at, *entity, "--alter", "--add-config", "retention.ms=5000000,cleanup.policy=compact")
    output = java.succeed(tools.CONFIGS, *at, *entity, "--describe").out
    assert "retention.ms=5000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000000}" in output
    default = "DEFAULT_CONFIG:log.cleanup.policy=delete"
    assert f"synonyms={{DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact, {default}}}" in output
    java.succeed(tools.CONFIGS, *at, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in java.succeed(tools.CONFIGS, *at, *entity, "--describe").out
    everything = java.succeed(tools.CONFIGS, *at, *entity, "--describe", "--all").out
    assert (
        "segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}" in everything
    )
    bad = java.run(tools.CONFIGS, *at, *entity, "--alter", "--add-config", "retention.ms=soon")
    assert bad.code == 1
    assert "InvalidConfigurationException" in bad.out + bad.err
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    output = java.succeed(tools.CONFIGS, *at, *broker, "--describe", "--all").out
    assert "group.min.session.timeout.ms=500 sensitive=false synonyms={STATIC_BROKER_CONFIG" in output


def test_groups_are_listed_described_reset_and_deleted(
    broker: Broker, java: JavaHost, at: tuple[str, str], topic: str, group: str
) -> None:
    fill(broker.bootstrap, topic, numbered(10))
    of_group = (*at, "--group", group)
    with consuming(broker.bootstrap, topic, **{"group.id": group, "client.id": "a-client"}) as consumer:
        take(consumer, 10)
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        row = java.succeed(tools.GROUPS, *of_group, "--describe").lines[-1].split()
        assert row[:6] == [group, topic, "0", "4", "10", "6"]
        assert row[-1] == "a-client"
        state = java.succeed(tools.GROUPS, *of_group, "--describe", "--state").lines[-1].split()
        assert state[-2:] == ["Stable", "1"]
        members = java.succeed(tools.GROUPS, *of_group, "--describe", "--members", "--verbose").lines[-1]
        assert f"{topic}:0" in members or f"{topic}(0)" in members
    assert group in java.succeed(tools.GROUPS, *at, "--list").lines
    reset = java.succeed(tools.GROUPS, *of_group, "--reset-offsets", "--to-offset", "2", "--topic", topic, "--execute")
    assert reset.lines[-1].split()[:4] == [group, topic, "0", "2"]
    assert java.succeed(tools.GROUPS, *of_group, "--describe", "--offsets").lines[-1].split()[3] == "2"
    deleted = java.succeed(tools.GROUPS, *of_group, "--delete-offsets", "--topic", topic)
    assert "Successful" in deleted.out
    java.succeed(tools.GROUPS, *of_group, "--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    assert "was successful" in java.succeed(tools.GROUPS, *of_group, "--delete").out
    assert group not in java.succeed(tools.GROUPS, *at, "--list").lines


def test_consumer_groups_are_listed_described_reset_and_deleted(
    broker: Broker, java: JavaHost, at: tuple[str, str], topic: str, unique: Callable[[str], str]
) -> None:
    fill(broker.bootstrap, topic, numbered(10))
    group, classic = unique("modern"), unique("classic")

    def lines(*arguments: str, tool: str = tools.GROUPS) -> list[list[str]]:
        return [line.split() for line in java.succeed(tool, *at, *arguments).lines]

    def about(*arguments: str) -> list[str]:
        return lines("--group", group, *arguments)[-1]

    def listed(*arguments: str, tool: str = tools.GROUPS) -> list[list[str]]:
        return [row for row in lines("--list", *arguments, tool=tool) if row[0] in (group, classic)]

    config = {"group.id": group, "group.protocol": CONSUMER, "client.id": "a-client"}
    with (
        consuming(broker.bootstrap, topic, **config) as consumer,
        consuming(broker.bootstrap, topic, **{"group.id": classic}) as other,
    ):
        for member in (consumer, other):
            take(member, 10)
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        assert sorted(listed("--type")) == [[classic, "Classic"], [group, "Consumer"]]
        assert listed("--type", "consumer", "--state", "stable") == [[group, "Consumer", "Stable"]]
        assert sorted(listed(tool=tools.ALL_GROUPS)) == [[classic, "Classic", CONSUMER], [group, "Consumer", CONSUMER]]
        assert listed("--group-type", "consumer", tool=tools.ALL_GROUPS) == [[group, "Consumer", CONSUMER]]
        assert listed("--share", tool=tools.ALL_GROUPS) == []
        row = about("--describe", "--offsets")
        assert (row[:6], row[-1]) == ([group, topic, "0", "4", "10", "6"], "a-client")
        assert about("--describe", "--state")[-3:] == ["uniform", "Stable", "1"]
        assert about("--describe", "--state", "--verbose")[-5:] == ["uniform", "Stable", "2", "2", "1"]
        row = about("--describe", "--members", "--verbose")
        assert row[-5:] == ["1", "2", f"{topic}:0", "2", f"{topic}:0"]
        assert "GroupNotEmptyException" in java.succeed(tools.GROUPS, *at, "--group", group, "--delete").out
        refused = java.succeed(tools.GROUPS, *at, "--group", group, "--delete-offsets", "--topic", topic)
        assert "GroupSubscribedToTopicException" in refused.out
        reset = ("--reset-offsets", "--topic", topic, "--execute")
        refused = java.succeed(tools.GROUPS, *at, "--group", group, *reset, "--to-earliest")
        assert "the current state is Stable" in refused.out + refused.err
    assert about("--describe", "--state")[-2:] == ["Empty", "0"]
    assert about(*reset, "--to-offset", "2")[:4] == [group, topic, "0", "2"]
    assert about("--describe", "--offsets")[3] == "2"
    deleted = java.succeed(tools.GROUPS, *at, "--group", group, "--delete-offsets", "--topic", topic)
    assert "Successful" in deleted.out
    assert "was successful" in java.succeed(tools.GROUPS, *at, "--group", group, "--delete").out
    assert listed("--type", "consumer") == []


def test_offsets_are_returned_by_time_and_end(broker: Broker, java: JavaHost, at: tuple[str, str], topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(6), timestamp=1_700_000_000_000)
    for time, expected in (("-1", "6"), ("-2", "0"), ("1700000000000", "0"), ("-3", "5")):
        result = java.succeed(tools.GET_OFFSETS, *at, "--topic", topic, "--time", time)
        if time == "-3":  # all have the same time; any of them is the right answer
            assert re.fullmatch(rf"{topic}:0:[0-5]", result.lines[0])
        else:
            assert result.lines == [f"{topic}:0:{expected}"]


def test_records_are_deleted_up_to_the_offsets_in_a_file(
    broker: Broker, java: JavaHost, at: tuple[str, str], topic: str, tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, numbered(6))
    wanted = tmp_path / "delete.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}))
    result = java.succeed(tools.DELETE_RECORDS, *at, "--offset-json-file", wanted)
    assert re.search(rf"{topic}-0\s+low_watermark: 4", result.out)
    assert java.succeed(tools.GET_OFFSETS, *at, "--topic", topic, "--time", "-2").lines == [f"{topic}:0:4"]


def test_the_broker_reports_its_versions_and_its_cluster(broker: Broker, java: JavaHost, at: tuple[str, str]) -> None:
    output = java.succeed(tools.API_VERSIONS, *at).out
    assert broker.bootstrap in output
    for api in ("Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]", "ApiVersions(18): 0 to "):
        assert api in output
    assert "Cluster ID: " in java.succeed(tools.CLUSTER, "cluster-id", *at).out


def test_features_are_described_upgraded_downgraded_and_disabled(java: JavaHost, at: tuple[str, str]) -> None:
    def described() -> tuple[str, ...]:
        """Lowest and highest level that the broker supports of transaction.version, and the level that it has."""
        (line,) = [it for it in java.succeed(tools.FEATURES, *at, "describe").lines if "transaction.version" in it]
        found = re.search(r"MinVersion: (\d+)\s+SupportedMaxVersion: (\d+)\s+FinalizedVersionLevel: (\d+)", line)
        assert found is not None, line
        return found.groups()

    assert described() == ("0", "2", "2")
    try:
        down = ("downgrade", "--feature", "transaction.version=1")
        assert "can be downgraded to 1" in java.succeed(tools.FEATURES, *at, *down, "--dry-run").out
        assert described() == ("0", "2", "2")
        assert "transaction.version was downgraded to 1." in java.succeed(tools.FEATURES, *at, *down).out
        eventually(lambda: described() == ("0", "2", "1"), "level 1")
        disable = java.succeed(tools.FEATURES, *at, "disable", "--unsafe", "--feature", "transaction.version")
        assert "transaction.version was disabled." in disable.out
        eventually(lambda: described() == ("0", "2", "0"), "level 0")
        up = java.succeed(tools.FEATURES, *at, "upgrade", "--feature", "transaction.version=1")
        assert "transaction.version was upgraded to 1." in up.out
    finally:
        java.succeed(tools.FEATURES, *at, "upgrade", "--feature", "transaction.version=2")
        eventually(lambda: described() == ("0", "2", "2"), "level 2")
    metadata = next(it for it in java.succeed(tools.FEATURES, *at, "describe").lines if "metadata.version" in it)
    assert re.search(r"FinalizedVersionLevel: 4\.3-IV0\s+Epoch: \d+", metadata)


def test_consumer_groups_are_turned_off_and_on_by_their_feature(
    broker: Broker, java: JavaHost, at: tuple[str, str], topic: str, group: str
) -> None:
    def level() -> str:
        (line,) = [it for it in java.succeed(tools.FEATURES, *at, "describe").lines if "group.version" in it]
        return line.split("FinalizedVersionLevel: ")[1].split()[0]

    change = ("--feature", "group.version")
    try:
        down = java.succeed(tools.FEATURES, *at, "downgrade", change[0], f"{change[1]}=0")
        assert "group.version was downgraded to 0." in down.out
        eventually(lambda: level() == "0", "level 0")
        config = {"group.id": group, "group.protocol": CONSUMER}
        with consuming(broker.bootstrap, topic, **config) as consumer:
            assert error_of_reading(consumer).code() == KafkaError._FATAL
    finally:
        up = java.succeed(tools.FEATURES, *at, "upgrade", change[0], f"{change[1]}=1")
        assert "group.version was upgraded to 1." in up.out
        eventually(lambda: level() == "1", "level 1")
    fill(broker.bootstrap, topic, numbered(1))
    with consuming(broker.bootstrap, topic, **config) as consumer:
        take(consumer, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("upgrade", "--feature", "transaction.version=3"), "level 3|version 3", id="too high"),
        pytest.param(("upgrade", "--feature", "transaction.version=1"), "downgrade", id="down without saying so"),
        pytest.param(("downgrade", "--metadata", "4.0-IV3"), "metadata", id="metadata down"),
        pytest.param(("downgrade", "--unsafe", "--metadata", "4.0-IV3"), "metadata", id="metadata down at any price"),
        pytest.param(("upgrade", "--feature", "no.such.feature=1"), "no.such.feature", id="unknown"),
    ],
)
def test_a_level_that_a_feature_cannot_have_is_an_error(
    java: JavaHost, at: tuple[str, str], arguments: tuple[str, ...], message: str
) -> None:
    refused = java.run(tools.FEATURES, *at, *arguments)
    assert refused.code == 1
    assert re.search(rf"Could not .*({message})", refused.out + refused.err)
    assert "1 out of 1 operation(s) failed." in refused.out + refused.err


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("--list",), id="list"),
        pytest.param(("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t"), id="add"),
        pytest.param(("--remove", "--force", "--allow-principal", "User:a", "--topic", "t"), id="remove"),
    ],
)
def test_acls_are_refused_without_an_authorizer(java: JavaHost, at: tuple[str, str], command: tuple[str, ...]) -> None:
    ended = java.run(tools.ACLS, *at, *command)
    assert "SecurityDisabledException: No Authorizer is configured" in ended.out + ended.err
