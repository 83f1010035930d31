"""Groups that change their protocol while they run: their members are replaced one by one, there and back (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, ConsumerGroupType, KafkaError, KafkaException, Producer, TopicPartition

from testkit.basics.waiting import Deadline
from testkit.clients import confluent
from testkit.clients.confluent_groups import settle
from testkit.clients.members import shared_out
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.raw.groups import CLASSIC, CONSUMER
from testkit.servers.brokers import Broker

MEMBERS = [pytest.param(3, id="3 members"), pytest.param(10, id="10 members", marks=pytest.mark.soak)]
STRATEGIES = ["range", "roundrobin"]
_NOT_NOW = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH)


@attrs.define(eq=False)
class Group:
    """Members that read and commit whenever they are polled, and a producer that writes meanwhile."""

    bootstrap: str
    name: str
    topic: str
    partitions: int
    producer: Producer
    members: list[tuple[Consumer, AbstractContextManager[Consumer]]] = attrs.field(factory=list)
    sent: int = 0
    read: dict[int, int] = attrs.field(factory=dict)
    """By partition: the next offset that nobody was given yet."""
    committed: dict[int, int] = attrs.field(factory=dict)

    def join(self, config: Mapping[str, Any]) -> None:
        opened = confluent.consuming(
            self.bootstrap, self.topic, **{"group.id": self.name, "on_commit": self._committed, **config}
        )
        self.members.append((opened.__enter__(), opened))

    def leave(self) -> None:
        """Closes the eldest member."""
        self.members.pop(0)[1].__exit__(None, None, None)

    def settle(self) -> None:
        """Polls until each partition has one owner, no member has too many, and all records sent so far are read."""
        most = -(-self.partitions // len(self.members))
        deadline = Deadline()
        while not shared_out(self._owned(), self.partitions, most=most):
            assert deadline.not_over(f"a balance; owned: {self._owned()}")
            self.turn(writes=True)
        self.catch_up()

    def catch_up(self) -> None:
        wanted, deadline = self.sent, Deadline()
        while sum(self.read.values()) < wanted and deadline.not_over(f"{wanted} records; read: {self.read}"):
            self.turn(writes=False)

    def turn(self, *, writes: bool) -> None:
        if writes:
            for _ in range(5 * self.partitions):
                self.producer.produce(self.topic, b"%d" % self.sent, partition=self.sent % self.partitions)
                self.sent += 1
            self.producer.poll(0)
        for consumer, _ in self.members:
            positions: dict[int, int] = {}
            for message in consumer.consume(num_messages=500, timeout=0.02):
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                partition, offset = message.partition() or 0, message.offset() or 0
                expected = self.read.get(partition, 0)
                assert offset <= expected, f"skipped: {partition} continues at {offset}, not at {expected}"
                assert offset >= self.committed.get(partition, 0), f"again: {offset} of {partition} was committed"
                self.read[partition] = max(expected, offset + 1)
                positions[partition] = offset + 1
            if positions:  # not waiting for the answer: that may come only after another member was polled
                offsets = [TopicPartition(self.topic, *position) for position in positions.items()]
                consumer.commit(offsets=offsets, asynchronous=True)

    def _committed(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Records committed offsets. A commit refused because the group is changing is made up for by the next."""
        for it in offsets:
            if error is None and it.error is None:
                self.committed[it.partition] = max(it.offset, self.committed.get(it.partition, 0))
            else:
                code = (error or it.error).code()
                assert code in _NOT_NOW, error or it.error

    def _owned(self) -> list[list[int]]:
        return [confluent.group_of(consumer) for consumer, _ in self.members]


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_of_confluent_clients_goes_there_and_back_under_load(
    broker: Broker, new_topic: Callable[..., str], group: str, strategy: str, members: int
) -> None:
    partitions = 2 * members
    topic = new_topic(partitions=partitions)
    admin = topics.admin(broker.bootstrap)
    protocols = {
        CLASSIC: {"partition.assignment.strategy": strategy, "session.timeout.ms": 10_000},
        CONSUMER: {"group.protocol": CONSUMER},
    }

    def kind() -> ConsumerGroupType:
        listing = admin.list_consumer_groups(request_timeout=confluent.CALL_TIMEOUT_S).result().valid
        (found,) = [it.type for it in listing if it.group_id == group]
        return found

    with ExitStack() as stack:
        producer = stack.enter_context(confluent.producing(broker.bootstrap, **{"enable.idempotence": True}))
        under_test = Group(broker.bootstrap, group, topic, partitions, producer)
        stack.callback(lambda: [opened.__exit__(None, None, None) for _, opened in under_test.members])
        for _ in range(members):
            under_test.join(protocols[CLASSIC])
            under_test.settle()
        for protocol in (CONSUMER, CLASSIC):
            for _ in range(members):
                under_test.join(protocols[protocol])
                under_test.settle()
                assert kind() == ConsumerGroupType.CONSUMER
                under_test.leave()
                under_test.settle()
            assert kind() == (ConsumerGroupType.CONSUMER if protocol == CONSUMER else ConsumerGroupType.CLASSIC)
        assert producer.flush(confluent.FLUSH_TIMEOUT_S) == 0
        under_test.catch_up()
        for consumer, _ in under_test.members:
            positions = [it for it in consumer.position(consumer.assignment()) if it.offset >= 0]
            consumer.commit(offsets=positions, asynchronous=False)
        assert sum(under_test.read.values()) == under_test.sent
        topic_partitions = [TopicPartition(topic, number) for number in range(partitions)]
        found = under_test.members[0][0].committed(topic_partitions, timeout=confluent.CALL_TIMEOUT_S)
        assert {it.partition: it.offset for it in found} == under_test.read


def test_a_cooperative_sticky_group_of_librdkafka_stays_as_it_is(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    """Its members write data of their own into assignments, which the coordinator would have to drop."""
    topic = new_topic(partitions=2)
    config = {"group.id": group, "partition.assignment.strategy": "cooperative-sticky"}
    with (
        confluent.consuming(broker.bootstrap, topic, **config) as one,
        confluent.consuming(broker.bootstrap, **config) as two,
        confluent.consuming(broker.bootstrap, **{"group.id": group, "group.protocol": CONSUMER}) as newcomer,
    ):
        settle([one], 2, most=2)
        two.subscribe([topic])
        settle([one, two], 2, most=1)
        newcomer.subscribe([topic])
        error = confluent.error_of_reading(newcomer)
        assert error.code() == KafkaError._FATAL
        assert "group id does not exist" in error.str()
        settle([one, two], 2, most=1)


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("strategy", ["range", "cooperativeSticky"])
def test_a_group_of_java_clients_goes_there_and_back_under_load(
    broker: Broker, java: JavaHost, unique: Callable[[str], str], strategy: str, members: int
) -> None:
    ended = java.succeed("MigrationScenarios", strategy, broker.bootstrap, unique(strategy), CLASSIC, str(members))
    assert ended.lines[-1] == "passed"
