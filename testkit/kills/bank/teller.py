"""A teller: takes orders from its partitions and books them, each exactly once.

    python -m testkit.kills.bank.teller '{"bootstrap": "...", "transactional_id": "...", ...}'

It aborts after abortable errors, and continues from the committed offsets. At any other error it ends, and its
supervisor starts its heir, which has the same transactional id, and so ends the open transaction.

For one call the timeout is not enough for that: librdkafka's send_offsets_to_transaction may wait for ever for a
coordinator that went away and came back (confluentinc/librdkafka#5456). When the transaction has reached its own
timeout, and a second more, an alarm ends the process.

A producer of librdkafka that has aborted unacknowledged records is not used again either, since it would lose records
(everything_at_once/transactor.py explains it). It is replaced by a new one.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys

import attrs
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from testkit.clients.confluent import consuming, quiet
from testkit.kills.bank.books import Order
from testkit.kills.sigkill.load import OF_A_BROKER_AWAY, RECONNECT

CALL_TIMEOUT_S = 10.0
ENDED_BY_AN_ERROR = 3
_MOST_AT_ONCE = 2
ONE_IN = 10
"""One in so many transactions is aborted on purpose."""


@attrs.frozen
class Post:
    """The assignment of a teller. The group has no members: it stores the offsets."""

    bootstrap: str
    transactional_id: str
    timeout_ms: int
    group: str
    orders: str
    order_partitions: list[int]
    accounts: str
    partitions: int
    seed: int


@attrs.define(eq=False)
class Teller:
    post: Post
    consumer: Consumer
    random: random.Random
    _producer: Producer = attrs.field(init=False)
    _unacknowledged: int = 0
    """Records of the current transaction."""

    def __attrs_post_init__(self) -> None:
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.post.bootstrap,
                "transactional.id": self.post.transactional_id,
                "transaction.timeout.ms": self.post.timeout_ms,
                "linger.ms": 1,
                **RECONNECT,
            },
            logger=quiet,
        )
        producer.init_transactions(CALL_TIMEOUT_S)
        return producer

    def work(self) -> None:
        """Works until it is killed, or until its parent process is gone."""
        self._resume()
        master = os.getppid()
        while os.getppid() == master:
            if taken := self._take():
                try:
                    self._book(taken)
                except KafkaException as exception:
                    if not exception.args[0].txn_requires_abort():
                        raise
                    self._abort()

    def _resume(self) -> None:
        """Seeks to the committed offsets, once they are stable, as read_committed requires."""
        spots = [TopicPartition(self.post.orders, partition) for partition in self.post.order_partitions]
        found = self.consumer.committed(spots, timeout=CALL_TIMEOUT_S)
        for spot in found:
            if spot.error is not None:
                raise KafkaException(spot.error)
            spot.offset = spot.offset if spot.offset >= 0 else OFFSET_BEGINNING
        self.consumer.assign(found)

    def _take(self) -> list[Message]:
        taken = []
        for message in self.consumer.consume(_MOST_AT_ONCE, timeout=0.1):
            error = message.error()
            if error is None:
                taken.append(message)
            elif error.code() not in OF_A_BROKER_AWAY:
                raise KafkaException(error)
        return taken

    def _book(self, taken: list[Message]) -> None:
        self._producer.begin_transaction()
        self._unacknowledged = 0
        behind: dict[tuple[str | None, int | None], int] = {}
        for message in taken:
            for half in Order.of(message.value() or b"").halves():
                partition = half.account % self.post.partitions
                self._producer.produce(
                    self.post.accounts, half.value(), partition=partition, on_delivery=self._on_delivery
                )
                self._unacknowledged += 1
            behind[message.topic(), message.partition()] = (message.offset() or 0) + 1
        offsets = [TopicPartition(topic or "", partition or 0, offset) for (topic, partition), offset in behind.items()]
        self._send_offsets(offsets)
        if self.random.randrange(ONE_IN) == 0:
            self._abort()
        else:
            self._producer.commit_transaction(CALL_TIMEOUT_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._unacknowledged -= 1

    def _send_offsets(self, offsets: list[TopicPartition]) -> None:
        within_s = self.post.timeout_ms / 1000
        signal.setitimer(signal.ITIMER_REAL, within_s + 1.0)
        try:
            self._producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), within_s)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _abort(self) -> None:
        self._producer.abort_transaction(CALL_TIMEOUT_S)
        if self._unacknowledged:
            self._producer = self._new_producer()
        self._resume()


def main() -> None:
    faulthandler.register(signal.SIGALRM, chain=True)  # prints the stack, and then ends as by any alarm
    post = Post(**json.loads(sys.argv[1]))
    config = {"group.id": post.group, "isolation.level": "read_committed", "fetch.wait.max.ms": 50, **RECONNECT}
    try:
        with consuming(post.bootstrap, **config | {"auto.offset.reset": "error"}) as consumer:
            Teller(post, consumer, random.Random(post.seed)).work()
    except KafkaException as error:
        print(post.transactional_id, error, file=sys.stderr)  # noqa: T201 - it goes to a file beside the others'
        sys.exit(ENDED_BY_AN_ERROR)


if __name__ == "__main__":
    main()
