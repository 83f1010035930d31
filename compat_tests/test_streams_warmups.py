"""A task of Kafka Streams 4.4 warms up in the instance that it moves to (KIP-1071). Meanwhile it runs where it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kwire.cli import main
from testkit.basics.waiting import eventually
from testkit.clients.confluent import fill
from testkit.clients.streams import STREAMS, Instances
from testkit.clients.transactions.librdkafka import Confluent
from testkit.kills.streams.scenario import judge
from testkit.raw import groups, topics
from testkit.raw.streams_members import all_tasks, coordinator, count, described
from testkit.servers import brokers
from testkit.servers.brokers import Broker

VERSION = "4.4.0"
PARTITIONS = 4
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(brokers.IS_KAFKA, reason="Apache Kafka 4.4.0 has the protocol, but no task that warms up"),
]


@pytest.mark.timeout(240)
def test_tasks_warm_up_before_they_move_to_a_new_instance(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    bootstrap, name = broker.bootstrap, unique("app")
    source, target = f"{name}-lines", f"{name}-words"
    for topic in (source, target):
        topics.create(bootstrap, topic, partitions=PARTITIONS)
    groups.configure(bootstrap, name, "streams.acceptable.recovery.lag", 0)
    groups.configure(bootstrap, name, "streams.num.warmup.replicas", 1)
    written: Counter[str] = Counter()
    instances = Instances(bootstrap, name, source, target, tmp_path, STREAMS, version=VERSION)

    def write() -> None:
        for partition in range(PARTITIONS):
            fill(bootstrap, source, [b" ".join(it.encode() for it in WORDS)] * 5, partition=partition)
            written.update(dict.fromkeys(WORDS, 5))

    def with_state(instance: str) -> int:
        return len([it for it in instances.tasks(instance)[0] if it.startswith("1_")])

    with instances.running(), coordinator(bootstrap, name) as client:

        def warmups() -> int:
            return sum(count(all_tasks(it.assignment)[2]) for it in described(client, name).members)

        write()
        instances.start("a")
        eventually(lambda: all(instances.count("a", it) == written[it] for it in WORDS), "all words are counted")
        instances.start("b")
        eventually(lambda: warmups() == 1, "a task warms up")
        shown = CliRunner().invoke(main, ["group", "members", name, "--bootstrap-server", bootstrap])
        assert "warmup 1:" in shown.output, shown.output
        assert (with_state("a"), with_state("b")) == (PARTITIONS, 0)
        write()
        eventually(lambda: with_state("b") == PARTITIONS // 2, "tasks have moved", within_s=90)
        assert warmups() == 0
        assert with_state("a") == PARTITIONS // 2
        assert instances.restored("b") == 0, "their state was there"
        progress = {it.client_id: len(it.task_offsets) for it in described(client, name).members}
        assert progress, "members report the progress of their tasks"
        write()
        eventually(
            lambda: all(written[it] in (instances.count("a", it), instances.count("b", it)) for it in WORDS),
            "all words are counted",
        )
        for instance in "ab":
            instances.leave(instance)
    judge(Confluent().values(bootstrap, target, range(PARTITIONS), committed=True), written)
