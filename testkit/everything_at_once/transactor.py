"""A transactional producer that is killed in a transaction, and replaced by one with the same transactional id.

Each transaction writes to some partitions of a topic without retention, one record to a compacted topic, and commits an
offset of a group of its own: all of it or nothing. It sends its plan and its results to the conductor
(`transactions.py`), before the first record and after the last answer.

librdkafka may wait for ever for a coordinator that went away and came back (confluentinc/librdkafka#5456); an alarm
ends the process then. Another fault of it: an abort forgets the records that wait to be sent once more, and gives their
sequence numbers to the next ones. If the broker has the forgotten ones, it takes the next for repetitions, as Apache
Kafka does (test_raw_transactions.py), and they are lost. So a producer that has aborted what was not acknowledged is
followed by a new one, which has an epoch of its own.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from testkit.clients.confluent import quiet
from testkit.everything_at_once.admin import LATEST, Admin
from testkit.everything_at_once.reading import read
from testkit.everything_at_once.transactions import Began, Ended
from testkit.everything_at_once.worker import Reporter
from testkit.kills.group_ledger import Spot
from testkit.kills.sigkill.ledger import Mark
from testkit.kills.sigkill.load import RECONNECT

TIMEOUT_MS = 5_000
CALL_WITHIN_S = 6.0
STUCK_AFTER_S = 12
LINGERS_FOR_S = 2.5


@attrs.frozen
class Order:
    bootstrap: str
    number: int
    """The number in the transactional id, which its successors have too."""
    first: int
    """The number of its first transaction."""
    transactional_id: str
    spots: Sequence[Spot]
    balances: Spot
    group: str
    seed: int

    def __call__(self, reporter: Reporter) -> Transactor:
        return Transactor(self, reporter)


@attrs.define(eq=False)
class Transactor:
    order: Order
    reporter: Reporter
    _random: random.Random = attrs.field(init=False)
    _next: int = attrs.field(init=False)
    _admin: Admin = attrs.field(init=False)
    _producer: Producer | None = None
    _committed: int = -1
    _unacknowledged: set[Spot] = attrs.field(factory=set)
    """The partitions of the current transaction's records, one in each."""
    _consumer: Consumer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.order.seed)
        self._next = self.order.first
        self._admin = Admin(self.order.bootstrap)
        # For no more than the name of its group.
        self._consumer = Consumer(
            {"bootstrap.servers": self.order.bootstrap, "group.id": self.order.group}, logger=quiet
        )

    def step(self) -> None:
        signal.alarm(STUCK_AFTER_S)
        try:
            if self._producer is None:
                self._producer = self._new()
            self._transact(self._producer)
        except KafkaException as exception:
            error = exception.args[0]
            self.reporter.count("transactions that met an error")
            if error.txn_requires_abort() and self._producer is not None:
                try:
                    self._abort(self._producer)
                    return
                except KafkaException:
                    pass
            # Only its own successor fences it: that has the same transactional id, and ends what was left open.
            self._producer = None
            time.sleep(0.05)

    def _new(self) -> Producer:
        settings = {
            "bootstrap.servers": self.order.bootstrap,
            "transactional.id": self.order.transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
            "linger.ms": 1,
            "compression.type": self._random.choice(("none", "lz4", "zstd")),
            **RECONNECT,
            "retry.backoff.max.ms": 100,
        }
        producer = Producer(settings, logger=quiet)
        producer.init_transactions(CALL_WITHIN_S)
        return producer

    def _transact(self, producer: Producer) -> None:
        chance, order = self._random, self.order
        number, self._next = self._next, self._next + 1
        lingers = chance.random() < 0.2
        commits = chance.random() < (0.2 if lingers else 0.8)
        spots = chance.sample(list(order.spots), chance.randrange(1, len(order.spots) + 1))
        self.reporter.send(Began(order.number, number, tuple(spots), commits))
        producer.begin_transaction()
        mark = Mark(order.number, number)
        self._unacknowledged = unacknowledged = {*spots, order.balances}

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                unacknowledged.discard((str(message.topic()), int(message.partition() or 0)))

        for spot in spots:
            value = mark.value(chance.randbytes(chance.randrange(300)))
            producer.produce(spot[0], value, partition=spot[1], on_delivery=on_delivery)
            producer.poll(0)
        key = b"%d" % order.number
        producer.produce(order.balances[0], mark.value(b""), key, partition=order.balances[1], on_delivery=on_delivery)
        if lingers or chance.random() < 0.3:
            producer.flush(CALL_WITHIN_S)
        if lingers:
            time.sleep(chance.uniform(0.5, LINGERS_FOR_S))  # segments are sealed, flushed and cleaned around it
        metadata = self._consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(*order.spots[0], number)], metadata, CALL_WITHIN_S)
        if commits:
            producer.commit_transaction(CALL_WITHIN_S)
        else:
            self._abort(producer)
        self.reporter.send(Ended(order.number, number))
        self.reporter.count("transactions committed" if commits else "transactions aborted")
        if commits:
            self._committed = number
        if lingers or chance.random() < 0.1:
            self._audit()
        time.sleep(chance.random() * 0.05)

    def _abort(self, producer: Producer) -> None:
        producer.abort_transaction(CALL_WITHIN_S)
        if self._unacknowledged:
            self._producer = None

    def _audit(self) -> None:
        signal.alarm(0)  # it has a time limit of its own
        """The balance that is seen is that of its last transaction: it has none open."""
        order, seen = self.order, -1
        end = self._admin.offset(order.balances, LATEST)
        for message in read(order.bootstrap, order.balances, end, committed=True):
            mark = Mark.of(bytes(message.value() or b""))
            if mark.producer == order.number:
                seen = mark.sequence
        if seen < self._committed:
            self.reporter.complain(
                f"transaction {self._committed} of {order.number} was committed, and the balance is that of {seen}"
            )
        self.reporter.count("audits")

    def settle(self) -> None:
        signal.alarm(0)

    def judge(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def close(self) -> None:
        self._consumer.close()
