"""Every setting that both brokers have, at its boundaries, and settings that have to fit each other.

The docstring of `boundaries.py` has the origin of the values and of the expected answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs
import pytest

from testkit.raw import topics
from testkit.raw.client import RawClient
from testkit.servers import boundaries, brokers
from testkit.servers.boundaries import START, Change
from testkit.servers.brokers import Broker


@attrs.frozen
class Difference:
    """kwire answers `letter` to these, and Apache Kafka does not to all of them."""

    letter: str
    reason: str
    resources: str = ".*"
    name: str = ".*"
    value: str = ".*"

    def is_about(self, change: Change) -> bool:
        ((name, value), *others) = change.settings
        patterns = ((self.resources, change.resource), (self.name, name), (self.value, value))
        return not others and all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in patterns)


_CLASSES_OF_LOGINS = (
    r"sasl\.(login|client|server)\.callback\.handler\.class|sasl\.login\.class|sasl\.oauthbearer\.jwt\..*\.class"
)

DIFFERENCES = (
    Difference(
        "r",
        "NaN is no bound: Apache Kafka takes it, and then nothing is more or less than that",
        resources="start|brokers?",
        name=r"log\.cleaner\..*|sasl\..*|remote\.log\.manager\.task\.retry\.jitter",
        value="NaN",
    ),
    Difference("c", "the same", resources="topic", name=r"min\.cleanable\.dirty\.ratio", value="NaN"),
    Difference(
        "r",
        "kwire loads no classes of Java: those that guard something are refused, whether or not there are such",
        resources="start|broker",
        name=r"ssl\.engine\.factory\.class|(client\.quota\.callback|(create\.topic|alter\.config)\.policy)\.class(\.name)?",
        value=r"java\.lang\.String",
    ),
    Difference(
        "r",
        "likewise, and Apache Kafka looks for them later",
        START,
        r"authorizer\.class\.name",
        "(?!org).*[^ ].*|ORG.*",
    ),
    Difference("r", "likewise", START, r"replica\.selector\.class", "(?!.*RackAwareReplicaSelector).*"),
    Difference(".", "classes for logins are looked at when a listener uses them", START, _CLASSES_OF_LOGINS),
    Difference("r", "a broker that serves nobody says why it does not start", START, r"max\.connections", "0"),
    Difference("r", "the same", START, r"max\.connection\.creation\.rate", "0"),
    Difference("r", "the same, for classic groups", START, r"group\.max\.session\.timeout\.ms", r"-?\d|-2147483648"),
    Difference("r", "the same", START, r"group\.min\.session\.timeout\.ms", "2147483647"),
    Difference(
        ".",
        "the default of group.consumer.assignment.interval.ms is 0, not 1000",
        START,
        r"group\.consumer\.max\.assignment\.interval\.ms",
        r"0|1|\+7",
    ),
    Difference(
        "r",
        "keys would be fetched all the time",
        START,
        r"sasl\.oauthbearer\.jwks\.endpoint\..*\.ms",
        "0|-1",
    ),
    Difference("r", "clocks do not go backwards", START, r"sasl\.oauthbearer\.clock\.skew\.seconds", "-1"),
    Difference("r", "what stops a start is refused before", "brokers?", r"config\.providers", ",|a,|a,,b"),
    Difference(".", "there is no quorum of controllers", START, r"controller\.quorum\.(voters|bootstrap\.servers)"),
    Difference(".", "the same", START, r"node\.id", r"0|2147483647|\+7"),
    Difference(".", "a process is always both", START, r"process\.roles", "broker|controller|broker,broker"),
    Difference(
        ".",
        "a listener that has the name of a protocol needs no entry",
        START,
        r"listener\.security\.protocol\.map",
        " ?",
    ),
)

CHANGES = [it for it in boundaries.expected() if it[0].resource != START]
STARTS = [it for it in boundaries.expected() if it[0].resource == START]


def wrong(expected: Iterable[tuple[Change, str]], found: Iterable[boundaries.Answer]) -> list[str]:
    lines = []
    for (change, letter), answer in zip(expected, found, strict=True):
        wanted = letter
        if not brokers.IS_KAFKA:
            wanted = next((it.letter for it in DIFFERENCES if it.is_about(change)), letter)
        if answer.letter != wanted:
            lines.append(f"{change.resource} {dict(change.settings)}: {wanted}, not {answer.letter} {answer.message}")
    return lines


def test_every_change_is_answered_as_by_apache_kafka(broker: Broker) -> None:
    topics.create(broker.bootstrap, boundaries.TOPIC_NAME)
    try:
        with RawClient(broker.bootstrap) as client:
            assert wrong(CHANGES, boundaries.answers(client, [change for change, _ in CHANGES])) == []
    finally:
        topics.delete(broker.bootstrap, boundaries.TOPIC_NAME)


def test_a_broker_starts_with_what_apache_kafka_starts_with(request: pytest.FixtureRequest) -> None:
    changes = [change for change, _ in STARTS]
    if brokers.IS_KAFKA:
        _, found = boundaries.starts_of_kafka(request.getfixturevalue("java"), changes)
    else:
        found = boundaries.starts_of_kwire(changes)
    assert wrong(STARTS, found) == []


def test_every_setting_of_both_brokers_has_its_boundaries() -> None:
    known = {(change.resource, change.settings[0][0]) for change, _ in boundaries.expected()}
    ours = {(resource, name) for name, those in boundaries.definitions().items() for resource, _ in those}
    missing = {name for _, name in ours - known if not re.match(r"kwire\.|zookeeper\.", name)}
    assert missing == ONLY_OURS


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda it: it.name)
def test_a_deliberate_difference_is_one(difference: Difference) -> None:
    about = [letter for change, letter in boundaries.expected() if difference.is_about(change)]
    assert set(about) - {difference.letter} != set(), "Apache Kafka answers the same: take it away"


ONLY_OURS = {
    # Of Apache Kafka 4.4.
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.topic.name.prefix",
    "group.streams.acceptable.recovery.lag",
    "group.streams.max.warmup.replicas",
    "group.streams.min.task.offset.interval.ms",
    "group.streams.num.warmup.replicas",
    "group.streams.task.offset.interval.ms",
    "group.streams.topology.description.plugin.class",
    "streams.acceptable.recovery.lag",
    "streams.num.warmup.replicas",
    "streams.task.offset.interval.ms",
    # Of its authorizer, which reads them itself.
    "allow.everyone.if.no.acl.found",
    "super.users",
    # Apache Kafka has these as dynamic configs only.
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
