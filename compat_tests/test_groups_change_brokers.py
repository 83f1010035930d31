"""Consumer groups that begin on Apache Kafka, continue on kwire with the same files, and then on Apache Kafka again.

Their members stay alive all the time, and must not notice: they keep their ids and partitions. Epochs may grow: each
broker has another hash of the topics that a group subscribes to.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, TopicPartition
from kwire_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

from devtools.apache_kafka import ApacheKafka
from testkit.basics.waiting import Deadline, eventually
from testkit.clients import confluent
from testkit.clients.confluent import consuming
from testkit.clients.confluent_groups import Moves
from testkit.clients.members import shared_out
from testkit.java.dumps import assert_kafka_is_content
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.raw.client import RawClient
from testkit.raw.groups import CONSUMER, wait_until_served
from testkit.servers.brokers import KIND, SETTINGS, KwireServe
from testkit.storage.checkpoint_files import CHECKPOINTS, rows_of

pytestmark = [
    pytest.mark.more,
    # Both brokers are in every test here: once is enough.
    pytest.mark.skipif(KIND != "kwire", reason="runs kwire and Apache Kafka, whatever KWIRE_COMPAT says"),
]

TOPIC, GROUP, PARTITIONS = "kept", "the-group", 4
AWAY = "group-of-one-who-is-away"


@attrs.define(eq=False)
class Members:
    bootstrap: str
    consumers: list[Consumer]
    moves: list[Moves]
    sent: int = 0

    def read(self) -> None:
        """A few records go into each partition, and come to those who own them, nothing else, and are committed."""
        for partition in range(PARTITIONS):
            confluent.fill(self.bootstrap, TOPIC, [b"%d" % self.sent] * 3, partition=partition)
        found: list[tuple[int, int]] = []
        deadline = Deadline()
        while len(found) < 3 * PARTITIONS and deadline.not_over(f"the records; got {found}"):
            for consumer in self.consumers:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    found.append((message.partition() or 0, message.offset() or 0))
        assert sorted(found) == [(it, self.sent + at) for it in range(PARTITIONS) for at in range(3)]
        self.sent += 3
        for consumer in self.consumers:
            consumer.commit(asynchronous=False)

    def settle(self) -> None:
        deadline = Deadline()
        while not shared_out([confluent.group_of(it) for it in self.consumers], PARTITIONS, most=2):
            assert deadline.not_over("a balance")
            for consumer in self.consumers:
                consumer.poll(0.05)


def described(bootstrap: str, group: str, *, is_settled: bool = True) -> Any:
    """The members with their partitions, not the epochs, once the group's coordinator has it.

    A group has settled when its members have got the epoch that a change of brokers begins. That is never so for
    a group whose only member is away.
    """

    def describe() -> Any:
        with RawClient(bootstrap) as client:
            (found,) = client.call(ConsumerGroupDescribeRequest([group]), 1).groups
        if found.error_code or (found.group_state == "Stable") != is_settled:
            return None
        return {
            it.member_id: (
                it.instance_id,
                it.member_epoch == -2,
                it.subscribed_topic_names,
                it.subscribed_topic_regex,
                *((one.topic_id, sorted(one.partitions)) for one in it.assignment.topic_partitions),
            )
            for it in found.members
        }

    return eventually(describe, f"{group} is described")


def take_over(source: Path, target: Path) -> None:
    """Replaces all partitions of the target by those of the source, which have the same topic ids."""
    folders = [it for it in source.iterdir() if it.name.startswith(("__consumer_offsets-", f"{TOPIC}-"))]
    assert len(folders) == 4 + PARTITIONS
    for folder in folders:
        shutil.rmtree(target / folder.name)
        shutil.copytree(folder, target / folder.name)
    ours = ("__consumer_offsets ", f"{TOPIC} ")
    for name in CHECKPOINTS:
        rows = [row for row in rows_of(target / name) if not row.startswith(ours)]
        rows += [row for row in rows_of(source / name) if row.startswith(ours)]
        (target / name).write_text("\n".join(["0", str(len(rows)), *rows, ""]))


@pytest.fixture
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(settings={**SETTINGS, "auto.create.topics.enable": "false"}) as running:
        wait_until_served(running.bootstrap)
        yield running


def test_members_notice_nothing_when_the_broker_is_another(kafka: ApacheKafka, tmp_path: Path, java: JavaHost) -> None:
    bootstrap = kafka.bootstrap
    topics.create(bootstrap, TOPIC, partitions=PARTITIONS)
    config = {"group.id": GROUP, "group.protocol": CONSUMER}
    with ExitStack() as stack:
        opened = [stack.enter_context(consuming(bootstrap, **config)) for _ in range(2)]
        members = Members(bootstrap, opened, [Moves(), Moves()])
        for consumer, moves in zip(opened, members.moves, strict=True):
            moves.subscribe(consumer, TOPIC)
        with consuming(bootstrap, f"^{TOPIC}$", **{**config, "group.id": AWAY, "group.instance.id": "one"}) as one:
            confluent.take_until(one, lambda: len(one.assignment()) == PARTITIONS, [], "an assignment")
            one.commit(offsets=[TopicPartition(TOPIC, 0, 2, "a note")], asynchronous=False)
        members.settle()
        members.read()
        before, away = described(bootstrap, GROUP), described(bootstrap, AWAY, is_settled=False)
        moved_before = [(list(it.given), list(it.taken)) for it in members.moves]
        kafka.kill()  # a stop would leave the partitions without a leader, until an Apache Kafka is there again

        shutil.copytree(kafka.data_dir, tmp_path / "data")
        kwire = KwireServe(tmp_path, dict(SETTINGS), port=kafka.port)
        stack.callback(kwire.kill)
        kwire.start()
        assert (described(bootstrap, GROUP), described(bootstrap, AWAY, is_settled=False)) == (before, away)
        members.read()
        with consuming(bootstrap, TOPIC, **{**config, "group.id": AWAY, "group.instance.id": "one"}) as one:
            records: list[Any] = []
            confluent.take_until(one, lambda: len(records) == 6 * PARTITIONS - 2, records, "the rest")
            assert min(it.offset() for it in records if it.partition() == 0) == 2
            one.commit(asynchronous=False)
        away = described(bootstrap, AWAY, is_settled=False)
        kwire.stop()
        assert assert_kafka_is_content(java, kwire.data_dir) > 10

        take_over(kwire.data_dir, kafka.data_dir)
        kafka.start()
        assert (described(bootstrap, GROUP), described(bootstrap, AWAY, is_settled=False)) == (before, away)
        members.read()
        assert [(it.given, it.taken) for it in members.moves] == moved_before
