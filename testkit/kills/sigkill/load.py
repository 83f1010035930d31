"""The clients: idempotent producers and the members of a group, each in a thread of its own, all of librdkafka; and the
reader of everything in the end.

They notice nothing of the kills but lost connections. This module decides which errors are complaints and which belong
to a broker that is down; the rest is in the ledger.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import attrs
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from testkit.basics.waiting import Deadline, eventually
from testkit.clients.confluent import consuming, is_of_a_downgraded_group, quiet
from testkit.kills.group_ledger import Spot
from testkit.kills.sigkill.ledger import Ledger, Mark
from testkit.raw.groups import CLASSIC, PROTOCOLS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MEMBERS = 2

# Some 3,000 records a second in all: a kill meets them anywhere, and the processor has time for a quick start.
MOST_IN_QUEUE, MOST_AT_ONCE, PAUSE_S = 100, 20, 0.03
FLUSH_WITHIN_S = 60.0
READ_WITHIN_S = 120.0
SESSION_TIMEOUT_MS = 2_000
# A small record is the common one; now and then one is larger than many a buffer.
SIZES = (*[(10, 200)] * 12, *[(1_000, 4_000)] * 6, (20_000, 120_000))
_FILLING_BYTES = 1 << 18

RECONNECT = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
# A consumer's errors about a broker that is away, or has just come back.
OF_A_BROKER_AWAY = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}

EXPECTED_MEMBER_ERRORS = OF_A_BROKER_AWAY | {
    # By a classic group that becomes a consumer group while they wait in it: they join again.
    KafkaError.REBALANCE_IN_PROGRESS,
}


@attrs.define(eq=False)
class Load:
    """All clients of a lap. `seed` makes their records repeatable, but not the times."""

    bootstrap: str
    spots: Sequence[Spot]
    group: str
    ledger: Ledger
    seed: int
    retry_backoff_max_ms: int = 100
    pause_s: float = PAUSE_S
    """The maximum pause of a producer between two small groups of records."""
    sizes: Sequence[tuple[int, int]] = SIZES
    """The range of a record's size in bytes; the end is exclusive."""
    _stop_sending: threading.Event = attrs.field(factory=threading.Event)
    _stop_reading: threading.Event = attrs.field(factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Starts it. In the end the queues are flushed and the members have had everything that is in the log."""
        self._commit_the_start()
        producers = [self._thread(partial(self._produce, number)) for number in range(len(CODECS))]
        members = [self._thread(partial(self._read, number)) for number in range(MEMBERS)]
        try:
            yield
            self._stop_sending.set()
            for thread in producers:
                thread.join()
            eventually(self._all_was_read, "the group has read everything", within_s=FLUSH_WITHIN_S)
        finally:
            self._stop_sending.set()
            self._stop_reading.set()
            for thread in (*producers, *members):
                thread.join()

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Exception as problem:
                self.ledger.complain(f"a client ended: {problem!r}")

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def _all_was_read(self) -> bool:
        ledger = self.ledger
        read = all(ledger.group.positions.get(spot, 0) >= ledger.end_of(spot) for spot in self.spots)
        return read or bool(ledger.complaints)

    # -- producers

    def _produce(self, number: int) -> None:
        ledger, random_ = self.ledger, random.Random(self.seed * 100 + number)
        # Half of it is worth compressing.
        pool = random_.randbytes(_FILLING_BYTES // 2) + b"kwire " * (_FILLING_BYTES // 12)
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": CODECS[number],
                "linger.ms": 1,
                "batch.num.messages": 50,
                "topic.metadata.refresh.interval.ms": 500,
                **RECONNECT,
                "retry.backoff.max.ms": self.retry_backoff_max_ms,
            },
            logger=quiet,
        )
        while not self._stop_sending.is_set():
            for _ in range(random_.randrange(1, MOST_AT_ONCE)):
                if len(producer) >= MOST_IN_QUEUE:
                    break
                spot = random_.choice(self.spots)
                size = random_.randrange(*random_.choice(self.sizes))
                at = random_.randrange(_FILLING_BYTES - size)
                mark = ledger.next_mark(spot, number)
                on_delivery = partial(self._on_delivery, spot, mark)
                producer.produce(spot[0], mark.value(pool[at : at + size]), partition=spot[1], on_delivery=on_delivery)
            producer.poll(0)
            self._stop_sending.wait(random_.random() * self.pause_s)
        left = producer.flush(FLUSH_WITHIN_S)
        if left:
            ledger.complain(f"{left} records of producer {number} were not acknowledged in {FLUSH_WITHIN_S} s")

    def _on_delivery(self, spot: Spot, mark: Mark, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.ledger.complain(f"{spot}: {mark} was refused: {error}")
        else:
            self.ledger.acknowledge(spot, message.offset(), mark)

    # -- the group

    def _consumer(self, protocol: str = CLASSIC) -> Consumer:
        classic = {"heartbeat.interval.ms": 200, "session.timeout.ms": SESSION_TIMEOUT_MS}
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "group.protocol": protocol,
            # With a commit, and if nothing was lost, no member ever has to reset its offset.
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 20,
            **(classic if protocol == CLASSIC else {}),
            "topic.metadata.refresh.interval.ms": 500,
            **RECONNECT,
        }
        return Consumer(settings, logger=quiet)

    def _commit_the_start(self) -> None:
        consumer = self._consumer()
        try:
            eventually(lambda: self._is_committed(consumer), "the group has committed its start")
        finally:
            consumer.close()
        self.ledger.group.commit(dict.fromkeys(self.spots, 0))

    def _is_committed(self, consumer: Consumer) -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(*spot, 0) for spot in self.spots], asynchronous=False)
        except KafkaException:  # the broker may just be away
            return False
        return True

    def _read(self, number: int) -> None:
        """Runs one member after the other: each reads for a while, and some leave without having committed.

        They speak either protocol, so that the group changes its kind again and again.
        """
        random_ = random.Random(self.seed * 100 + 50 + number)
        while not self._stop_reading.is_set():
            consumer = self._consumer(random_.choice(PROTOCOLS))
            consumer.subscribe(sorted({topic for topic, _ in self.spots}))
            try:
                # The first member stays, so that there always is one who reads.
                self._read_with(consumer, random_, polls=random_.randrange(10, 80) if number else None)
            finally:
                consumer.close()

    def _read_with(self, consumer: Consumer, random_: random.Random, polls: int | None) -> None:
        """Returns after so many polls, or at the end if it is None; earlier if the member cannot continue."""
        while not self._stop_reading.is_set() and polls != 0:
            polls = None if polls is None else polls - 1
            for message in consumer.consume(num_messages=200, timeout=0.03):
                error = message.error()
                if error is None:
                    self.ledger.deliver((message.topic(), message.partition()), message.offset(), message.value())
                elif is_of_a_downgraded_group(error):
                    return
                elif error.code() not in EXPECTED_MEMBER_ERRORS:
                    self.ledger.complain(f"a member got {error}")
            if random_.random() < 0.2:
                self._commit(consumer)
        if polls is None:
            self._commit(consumer)

    def _commit(self, consumer: Consumer) -> None:
        positions = [it for it in consumer.position(consumer.assignment()) if it.offset >= 0]
        if not positions:
            return
        try:
            taken = consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException:  # not acknowledged, whatever the reason: the ledger lets it be there or not
            return
        self.ledger.group.commit({(it.topic, it.partition): it.offset for it in taken if it.error is None})


def read_values(bootstrap: str, spot: Spot, end_offset: int) -> Iterator[tuple[int, bytes]]:
    """Offset and value of every record that is given to a consumer."""
    deadline, position = Deadline(READ_WITHIN_S), 0
    with consuming(bootstrap, **{"check.crcs": True, "auto.offset.reset": "error"}) as consumer:
        eventually(lambda: spot[0] in consumer.list_topics(spot[0], timeout=20.0).topics, "metadata")
        consumer.assign([TopicPartition(*spot, OFFSET_BEGINNING)])
        while position < end_offset and deadline.not_over(f"{spot} up to {end_offset}; it stands at {position}"):
            for message in consumer.consume(num_messages=1000, timeout=0.05):
                error = message.error()
                assert error is None, error
                position = int(message.offset() or 0) + 1
                yield position - 1, bytes(message.value() or b"")
