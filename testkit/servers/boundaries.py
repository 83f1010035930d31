"""Values at the boundaries of every setting, and Apache Kafka's answer to each.

A setting has twelve values: those around its bounds, its choices, and values of another type. `boundaries.txt` has a
line for each setting: its name, its values, and the answers to them, a letter each (see `LETTERS`). "broker",
"brokers" (all of them), "topic", "group" and "metrics" are kinds of resources, which get a change that is validated
only; "start" is a broker's start with this value in its server.properties. Further lines have several settings that do
not fit each other, or just so: the kind, the settings, and the answer.

Apache Kafka has given the answers:

    KWIRE_COMPAT=kafka .venv/bin/python -m testkit.servers.boundaries

rewrites the file, for the settings that both brokers have. Run it when a setting is added or its range changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from kwire.config.definition import ConfigDefinition, ConfigError, ConfigType, to_text
from kwire.config.server import ServerConfig
from kwire.config.tables.broker import broker_configs
from kwire.config.tables.resource import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from kwire.config.tables.topic import TOPIC_CONFIGS
from kwire.config.validators import Admitted, JavaClass, ListOf, OneOf, OptionalChoice, Range, RangeOr
from testkit.java.java_host import JavaHost, java_host
from testkit.raw import topics
from testkit.raw.client import RawClient
from testkit.raw.configs import ALL_BROKERS, BROKER, GROUP, METRICS, SET, THIS_BROKER, TOPIC, described
from testkit.servers import brokers

FILE: Final = Path(__file__).with_name("boundaries.txt")
VALUES: Final = 12
IN_FLIGHT: Final = 400

TOPIC_NAME: Final = "boundaries"
START: Final = "start"
RESOURCES: Final = {
    "broker": (BROKER, THIS_BROKER),
    "brokers": (BROKER, ALL_BROKERS),
    "topic": (TOPIC, TOPIC_NAME),
    "group": (GROUP, "boundaries"),
    "metrics": (METRICS, "boundaries"),
}
LETTERS: Final = {
    ErrorCode.NONE: ".",
    ErrorCode.INVALID_REQUEST: "r",
    ErrorCode.INVALID_CONFIG: "c",
}
"""The letter of each error code in the file. A start that is refused is an r."""

ORACLE: Final = "StartOracle"
BEGINS: Final = {
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "node.id": "1",
    "process.roles": "broker,controller",
}
"""The settings without which Apache Kafka does not start."""

_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@attrs.frozen
class Change:
    """Settings of one kind of resource, or of a start."""

    resource: str
    settings: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, resource: str, settings: Mapping[str, str]) -> Change:
        return cls(resource, tuple(settings.items()))


@attrs.frozen
class Answer:
    letter: str
    message: str


def definitions() -> dict[str, list[tuple[str, ConfigDefinition]]]:
    """Returns the kinds of resources that have it, by the setting's name."""
    found: dict[str, list[tuple[str, ConfigDefinition]]] = {}
    for resource, table in (
        (START, broker_configs()),
        ("broker", broker_configs()),
        ("brokers", broker_configs()),
        ("topic", TOPIC_CONFIGS),
        ("group", GROUP_CONFIGS),
        ("metrics", CLIENT_METRICS_CONFIGS),
    ):
        for name, definition in table.items():
            found.setdefault(name, []).append((resource, definition))
    return dict(sorted(found.items()))


def values_of(definition: ConfigDefinition) -> list[str]:
    """The twelve values of a setting, by its type and its range."""
    given = to_text(definition.default)
    found: list[str] = []
    match definition.type:
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            found += map(str, _numbers_around(definition))
            found += ["", "x", str(10**20), "1.5", f" {given or 7} ", "+7", "1e3", "0x10", "2"]
        case ConfigType.DOUBLE:
            found += ["0", "-1", "0.0", "1", "1.0000001", "0.5", " 0.5 ", "", "x", "NaN", "1e400", "1e-3"]
        case ConfigType.BOOLEAN:
            found += ["true", "false", "TRUE", "False", " true ", "", " ", "1", "0", "yes", "null", "truetrue"]
        case ConfigType.LIST:
            choices = _choices(definition)
            found += choices[:3]
            found += [",".join(choices[:2]), ",".join(choices[:1] * 2)] if choices else []
            found += ["", ",", "a,", "a,,b", "a,a", " a , b ", "a", "*", "0:1", "a=b", "0:1,*", "PLAINTEXT", "x" * 300]
        case _:
            choices = _choices(definition)
            found += choices[:3]
            found += [choices[0].upper(), choices[0].lower(), f" {choices[0]} "] if choices and choices[0] else []
            found += ["", " ", "x", "1", "-1", "x,y", "a:1", "a:x", "java.lang.String", "no.such.Class", "x" * 300, "é"]
    return list(dict.fromkeys(found))[:VALUES]


def _numbers_around(definition: ConfigDefinition) -> list[int]:
    least, most = -(1 << (_BITS[definition.type] - 1)), (1 << (_BITS[definition.type] - 1)) - 1
    low, high = least, most
    match definition.validator:
        case Range(lowest, highest):
            low, high = (least if lowest is None else int(lowest)), (most if highest is None else int(highest))
        case RangeOr(low, high):
            pass
        case Admitted():
            low = 1
    return [low - 1, low, 0, -1, 1, high, high + 1]


def _choices(definition: ConfigDefinition) -> list[str]:
    match definition.validator:
        case OneOf(choices) | OptionalChoice(choices) | ListOf(choices) | JavaClass(choices):
            return list(choices)
        case _:
            return []


# The relations of settings to each other, at the boundaries.
TOGETHER: Final = (
    *(
        (START, settings)
        for kind in ("consumer", "share", "streams")
        for settings in (
            {f"group.{kind}.min.session.timeout.ms": "1", f"group.{kind}.session.timeout.ms": "5000"},
            {f"group.{kind}.min.session.timeout.ms": "1", f"group.{kind}.session.timeout.ms": "5001"},
            {f"group.{kind}.min.heartbeat.interval.ms": "6000", f"group.{kind}.heartbeat.interval.ms": "5999"},
            {f"group.{kind}.max.heartbeat.interval.ms": "5000", f"group.{kind}.min.heartbeat.interval.ms": "5000"},
            {f"group.{kind}.max.heartbeat.interval.ms": "4999", f"group.{kind}.min.heartbeat.interval.ms": "4999"},
            {f"group.{kind}.assignment.interval.ms": "5", f"group.{kind}.min.assignment.interval.ms": "6"},
            {f"group.{kind}.assignment.interval.ms": "5", f"group.{kind}.max.assignment.interval.ms": "4"},
            {f"group.{kind}.assignment.interval.ms": "5", f"group.{kind}.max.assignment.interval.ms": "5"},
            {f"group.{kind}.session.timeout.ms": "60001", f"group.{kind}.max.session.timeout.ms": "60001"},
        )
    ),
    (START, {"group.share.delivery.count.limit": "3", "group.share.min.delivery.count.limit": "4"}),
    (START, {"group.share.delivery.count.limit": "6", "group.share.max.delivery.count.limit": "5"}),
    (START, {"group.share.partition.max.record.locks": "100", "group.share.min.partition.max.record.locks": "101"}),
    (START, {"group.share.partition.max.record.locks": "2001", "group.share.max.partition.max.record.locks": "2000"}),
    (START, {"group.share.record.lock.duration.ms": "29999", "group.share.min.record.lock.duration.ms": "30000"}),
    (START, {"group.share.record.lock.duration.ms": "30001", "group.share.max.record.lock.duration.ms": "30000"}),
    (START, {"group.share.max.size": "300", "group.share.max.share.sessions": "299"}),
    (START, {"group.share.max.size": "300", "group.share.max.share.sessions": "300"}),
    (START, {"group.streams.num.standby.replicas": "3", "group.streams.max.standby.replicas": "3"}),
    (START, {"group.streams.num.standby.replicas": "1", "group.streams.max.standby.replicas": "0"}),
    (START, {"replica.fetch.wait.max.ms": "30001"}),
    (START, {"replica.fetch.wait.max.ms": "30001", "replica.socket.timeout.ms": "30001"}),
    (
        START,
        {
            "replica.fetch.wait.max.ms": "30001",
            "replica.socket.timeout.ms": "30001",
            "replica.lag.time.max.ms": "30001",
        },
    ),
    (START, {"queued.max.request.bytes": "100"}),
    (START, {"queued.max.request.bytes": "100", "socket.request.max.bytes": "100"}),
    (START, {"queued.max.request.bytes": "99", "socket.request.max.bytes": "100"}),
    (START, {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"}),
    (START, {"connections.max.idle.ms": "100"}),
    (START, {"connections.max.idle.ms": "100", "connection.failed.authentication.delay.ms": "99"}),
    (START, {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097153"}),
    (START, {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097154"}),
    (START, {"log.dirs": "/a,/b", "cordoned.log.dirs": "/b"}),
    (START, {"log.dirs": "/a,/b", "cordoned.log.dirs": "/c"}),
    (START, {"log.local.retention.ms": "20", "log.retention.ms": "10"}),
    (START, {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "9"}),
    (START, {"node.id": "1", "broker.id": "2"}),
    *(
        ("group", {f"{kind}.session.timeout.ms": session, f"{kind}.heartbeat.interval.ms": heartbeat})
        for kind in ("consumer", "share", "streams")
        for session, heartbeat in (("600", "600"), ("600", "599"), ("600", "601"), ("500", "100"), ("499", "100"))
    ),
    ("topic", {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}),
    ("topic", {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"}),
    ("topic", {"retention.ms": "10", "local.retention.ms": "20"}),
    *(
        (resource, settings)
        for resource in ("broker", "brokers")
        for settings in (
            {"log.local.retention.ms": "20", "log.retention.ms": "10"},
            {"log.local.retention.ms": "10", "log.retention.ms": "10"},
            {"log.local.retention.ms": "-1", "log.retention.ms": "-1"},
            {"log.local.retention.ms": "5", "log.retention.ms": "-1"},
            {"log.local.retention.bytes": "20", "log.retention.bytes": "10"},
            {"log.local.retention.bytes": "10", "log.retention.bytes": "10"},
            {"log.local.retention.bytes": "-1", "log.retention.bytes": "10"},
            {"log.local.retention.bytes": "20", "log.retention.bytes": "-1"},
            {"log.cleaner.dedupe.buffer.size": "2097153", "log.cleaner.threads": "2"},
            {"log.cleaner.dedupe.buffer.size": "2097154", "log.cleaner.threads": "2"},
            {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "9"},
            {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
            {"max.connections.per.ip.overrides": "127.0.0.1:-1"},
            {"max.connections.per.ip.overrides": "a b:1"},
            {"listener.name.plaintext.max.connections": "0"},
            {"listener.name.plaintext.max.connection.creation.rate": "0"},
        )
    ),
    ("broker", {"metric.reporters": "org.apache.kafka.common.metrics.JmxReporter"}),
    ("broker", {"listener.name.plaintext.principal.builder.class": "no.such.Class"}),
)


def answers(client: RawClient, changes: Sequence[Change]) -> list[Answer]:
    """The broker's answer to each change. All are validated only."""
    found = []
    for start in range(0, len(changes), IN_FLIGHT):
        some = changes[start : start + IN_FLIGHT]
        client.send_requests(*((_request(change), 1) for change in some))
        for _ in some:
            (answer,) = client.answer().responses
            found.append(Answer(LETTERS[ErrorCode(answer.error_code)], answer.error_message or ""))
    return found


def _request(change: Change) -> IncrementalAlterConfigsRequest:
    resource_type, resource_name = RESOURCES[change.resource]
    wanted = [AlterableConfig(name, SET, value) for name, value in change.settings]
    return IncrementalAlterConfigsRequest([AlterConfigsResource(resource_type, resource_name, wanted)], True)


def starts_of_kafka(java: JavaHost, changes: Sequence[Change]) -> tuple[set[str], list[Answer]]:
    """The names of Apache Kafka's settings, and whether it starts with each of these."""
    lines = ("\t".join(f"{name}={value}" for name, value in (BEGINS | dict(it.settings)).items()) for it in changes)
    names, *outcomes = java.succeed(ORACLE, stdin="".join(f"{line}\n" for line in lines)).out.splitlines()
    assert len(outcomes) == len(changes)
    return set(names.split(" ")), [Answer("." if it == "OK" else "r", it) for it in outcomes]


def starts_of_kwire(changes: Sequence[Change]) -> list[Answer]:
    found = []
    for change in changes:
        try:
            ServerConfig.from_properties(BEGINS | dict(change.settings))
        except ConfigError as error:
            found.append(Answer("r", str(error)))
        else:
            found.append(Answer(".", ""))
    return found


def expected() -> Iterator[tuple[Change, str]]:
    """The changes of the file, and the letter that answers each."""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        match json.loads(line):
            case [str() as name, list() as values, dict() as letters]:
                for resource, of_values in letters.items():
                    for value, letter in zip(values, of_values, strict=True):
                        yield Change.of(resource, {name: value}), letter
            case [str() as resource, dict() as settings, str() as letter]:
                yield Change.of(resource, settings), letter
            case other:
                raise AssertionError(other)


def main() -> None:
    assert brokers.KIND == "kafka", "the answers must be those of Apache Kafka: set KWIRE_COMPAT=kafka"
    with brokers.shared_broker() as broker, RawClient(broker.bootstrap) as client, java_host() as java:
        topics.create(broker.bootstrap, TOPIC_NAME)
        FILE.write_text("".join(_lines(client, java)), encoding="utf-8")


def _lines(client: RawClient, java: JavaHost) -> Iterator[str]:
    described_names = described(client, BROKER, THIS_BROKER).keys()
    of_one = {name: values_of(those[-1][1]) for name, those in definitions().items()}
    names, outcomes = starts_of_kafka(
        java, [Change.of(START, {name: value}) for name, values in of_one.items() for value in values]
    )
    starts = iter(outcomes)
    for name, those in definitions().items():
        of_start = [next(starts) for _ in of_one[name]]
        letters = {}
        for resource, _ in those:
            if resource == START:
                found, is_known = of_start, name in names
            else:
                found = answers(client, [Change.of(resource, {name: value}) for value in of_one[name]])
                refused = [it for it in found if it.letter != "." and not it.message.startswith("Unknown")]
                is_known = bool(refused) or name in described_names
            if is_known:
                letters[resource] = "".join(it.letter for it in found)
        if letters:
            yield json.dumps([name, of_one[name], letters], ensure_ascii=False) + "\n"
    for resource, settings in TOGETHER:
        change = Change.of(resource, settings)
        (answer,) = starts_of_kafka(java, [change])[1] if resource == START else answers(client, [change])
        yield json.dumps([resource, settings, answer.letter]) + "\n"


if __name__ == "__main__":
    main()
