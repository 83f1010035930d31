"""Instances of a Kafka Streams application come and go, with standby tasks and interactive queries.

With the classic protocol, the instances' own assignor does what the broker does with the streams protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.basics.waiting import eventually
from testkit.clients.confluent import fill
from testkit.clients.streams import CLASSIC, STREAMS, Instances, changelog, repartition
from testkit.clients.transactions.librdkafka import Confluent
from testkit.kills.streams.scenario import judge
from testkit.raw import configs, groups, topics
from testkit.raw.client import RawClient
from testkit.raw.streams_members import coordinator, described
from testkit.servers.brokers import Broker

PARTITIONS = 2
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
ALL_TASKS = {f"{part}_{number}" for part in (0, 1) for number in range(PARTITIONS)}
STATEFUL = {f"1_{number}" for number in range(PARTITIONS)}


@pytest.mark.parametrize("protocol", [STREAMS, pytest.param(CLASSIC, marks=pytest.mark.soak)])
@pytest.mark.timeout(180)
def test_tasks_move_with_their_state_as_instances_come_and_go(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path, protocol: str
) -> None:
    bootstrap, name = broker.bootstrap, unique("app")
    source, target = f"{name}-lines", f"{name}-words"
    for topic in (source, target):
        topics.create(bootstrap, topic, partitions=PARTITIONS)
    if protocol == STREAMS:
        groups.configure(bootstrap, name, "streams.num.standby.replicas", 1)
    written: Counter[str] = Counter()
    instances = Instances(bootstrap, name, source, target, tmp_path, protocol)

    def write() -> None:
        for partition in range(PARTITIONS):
            fill(bootstrap, source, [b" ".join(it.encode() for it in WORDS)] * 5, partition=partition)
            written.update(dict.fromkeys(WORDS, 5))

    def owner(word: str, *names: str) -> str:
        """The instance that has the word's count, which is the whole one."""

        def found() -> str:
            return next((it for it in names if instances.count(it, word) == written[word]), "")

        return eventually(found, f"{word} is counted {written[word]} times")

    def is_shared() -> bool:
        """Returns whether each task is active in one instance, and each with state is a standby task of the other."""
        one, other = instances.tasks("a"), instances.tasks("b")
        return (
            one[0] | other[0] == ALL_TASKS
            and not one[0] & other[0]
            and len(one[0]) == len(other[0]) == PARTITIONS
            and (one[1], other[1]) == (other[0] & STATEFUL, one[0] & STATEFUL)
        )

    def partitions_of(tasks: set[str]) -> set[str]:
        return {f"{repartition(name)}-{it.split('_')[1]}" for it in tasks & STATEFUL}

    with instances.running():
        write()
        instances.start("a")
        assert owner("one", "a") == "a"
        assert instances.tasks("a") == (ALL_TASKS, set())
        with RawClient(bootstrap) as client:
            for internal, policy in ((changelog(name), "compact"), (repartition(name), "delete")):
                assert configs.described(client, configs.TOPIC, internal)["cleanup.policy"].value == policy
        instances.start("b")
        eventually(is_shared, "both have tasks, and standby tasks for the other's")
        write()
        owners = {word: owner(word, "a", "b") for word in WORDS}
        assert set(owners.values()) == {"a", "b"}, "the words are in both partitions"
        tasks = {it: instances.tasks(it) for it in "ab"}
        for instance in "ab":
            expected = {word: (its_owner, {"a", "b"} - {its_owner}) for word, its_owner in owners.items()}
            assert {word: instances.where(instance, word) for word in WORDS} == expected
            found = instances.hosts(instance)
            assert {
                it: (partitions & partitions_of(STATEFUL), standby) for it, (partitions, standby) in found.items()
            } == {it: (partitions_of(active), partitions_of(standby)) for it, (active, standby) in tasks.items()}
        instances.leave("a")
        write()
        assert {owner(word, "b") for word in WORDS} == {"b"}
        assert instances.tasks("b") == (ALL_TASKS, set())
        instances.leave("b")
        if protocol == STREAMS:
            with coordinator(bootstrap, name) as client:
                eventually(lambda: described(client, name).group_state == "Empty", "all have left")
        instances.start("c")
        assert {owner(word, "c") for word in WORDS} == {"c"}
        assert instances.restored("c") >= len(WORDS)
        instances.leave("c")
    judge(Confluent().values(bootstrap, target, range(PARTITIONS), committed=True), written)
