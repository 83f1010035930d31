"""The clients: each producer has a topic and a ledger of its own, and a group with members of both clients reads all.

All have the settings that clients have by default, except how soon they connect again.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import attrs
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from devtools.jars import classpath, compile_java
from devtools.java import java, java_environment
from kwire.client.cluster import Cluster
from kwire.client.cluster import TopicPartition as ClusterPartition
from kwire.client.errors import ClientError
from kwire.client.groups import commit_offsets, fetch_offsets
from testkit.basics.waiting import eventually
from testkit.clients.confluent import quiet
from testkit.java.java_host import JARS, LOGGING, OPTIONS
from testkit.kills.cluster_faults.ledgers import Acknowledged, Decided, Found
from testkit.kills.group_ledger import GroupLedger, Spot
from testkit.kills.sigkill.load import OF_A_BROKER_AWAY

CONFLUENT: Final = "confluent"
CONFLUENT_TRANSACTIONS: Final = "confluent-transactions"
JAVA: Final = "java"
JAVA_TRANSACTIONS: Final = "java-transactions"
TOPICS: Final = (CONFLUENT, CONFLUENT_TRANSACTIONS, JAVA, JAVA_TRANSACTIONS)
PARTITIONS: Final = 4
REPLICAS: Final = 3
GROUP: Final = "readers"
BOOKMARKS: Final = "bookmarks"
"""Groups without members, each of which commits once: nothing covers up a commit that was acknowledged and is lost."""
ENDS_WITHIN_S: Final = 180.0
CALL_TIMEOUT_S: Final = 60.0
"""The timeout of a call to librdkafka's transactional producer: a call that has timed out is made again."""
_ABORTS_ONE_IN: Final = 4
_COMMIT_EVERY_S: Final = 1.0
_BOOKMARKED: Final = ClusterPartition(CONFLUENT, 0)
_SOURCE: Final = Path(__file__).parent / "Clients.java"


def _config(bootstrap_servers: str, **config: Any) -> dict[str, Any]:
    """`config` with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    return {"bootstrap.servers": bootstrap_servers, "reconnect.backoff.max.ms": 500, **named}


@attrs.define(eq=False)
class Load:
    """Writes `batch` records, or a transaction, and pauses for `pause_s`, in each producer.

    with Load(bootstrap_servers) as load:
        ...
        load.finish_writing()
    """

    bootstrap_servers: str
    batch: int = 10
    pause_s: float = 0.05
    acknowledged: dict[str, Acknowledged] = attrs.field(init=False)
    decided: dict[str, Decided] = attrs.field(init=False)
    group: GroupLedger = attrs.field(factory=GroupLedger)
    bookmarks: dict[str, int] = attrs.field(factory=dict)
    """The offset that a group has committed."""
    _seen_bookmarks: set[str] = attrs.field(factory=set)
    _stop_writing: threading.Event = attrs.field(factory=threading.Event)
    _stop_reading: threading.Event = attrs.field(factory=threading.Event)
    _writers: list[threading.Thread] = attrs.field(factory=list)
    _ended: ExitStack = attrs.field(factory=ExitStack)
    _java: JavaClients = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.acknowledged = {topic: Acknowledged(PARTITIONS) for topic in (CONFLUENT, JAVA)}
        self.decided = {topic: Decided() for topic in (CONFLUENT_TRANSACTIONS, JAVA_TRANSACTIONS)}
        self._java = JavaClients(self)

    @property
    def ledgers(self) -> dict[str, Acknowledged | Decided]:
        """The ledgers by topic."""
        return {**self.acknowledged, **self.decided}

    def __enter__(self) -> Self:
        admin = AdminClient(_config(self.bootstrap_servers), logger=quiet)
        made = admin.create_topics([NewTopic(topic, PARTITIONS, REPLICAS) for topic in TOPICS])
        for future in made.values():
            future.result(60)
        with ExitStack() as started:
            started.enter_context(_thread(self._read))
            started.callback(self._stop_reading.set)
            works = (self._write, self._write_transactions, self._write_bookmarks)
            self._writers = [started.enter_context(_thread(it)) for it in works]
            started.callback(self._stop_writing.set)
            started.enter_context(self._java)
            self._ended = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.__exit__(kind, error, trace)

    def counts(self) -> dict[str, int]:
        """Returns the progress of each client: it grows."""
        written = {topic: it.count for topic, it in self.ledgers.items()}
        return {**written, GROUP: self.group.count, BOOKMARKS: len(self.bookmarks)}

    def errors(self) -> list[str]:
        """Returns the errors that clients have raised so far, although they retry."""
        found = [f"{topic}: {error}" for topic, it in self.ledgers.items() for error in it.errors]
        return found + [f"{GROUP}: {error}" for error in self.group.errors]

    def take_longest_wait_s(self) -> float:
        """Returns the longest wait of a write since the last call."""
        longest_s = max(it.longest_wait_s for it in self.ledgers.values())
        for it in self.ledgers.values():
            it.longest_wait_s = 0.0
        return longest_s

    def finish_writing(self) -> None:
        """Returns when all that was sent is acknowledged, and all transactions are over."""
        self._stop_writing.set()
        self._java.finish_writing()
        for thread in self._writers:
            thread.join(ENDS_WITHIN_S)
            assert not thread.is_alive(), "a producer does not come to an end"

    def check_commits(self) -> None:
        """Checks that acknowledged commits are there. Bookmarks are looked up once."""
        acknowledged, bookmarks = self.group.known(), dict(self.bookmarks)
        # Not by librdkafka 2.16: if a coordinator has moved, its admin client spins or crashes in the next such call.
        with Cluster(self.bootstrap_servers, timeout_s=60) as cluster:
            found = fetch_offsets(cluster, GROUP, require_stable=True)
            for group, offset in bookmarks.items():
                if group not in self._seen_bookmarks:
                    at = fetch_offsets(cluster, group).get(_BOOKMARKED)
                    assert at is not None, f"the commit of {group} was acknowledged, and there is none"
                    assert at.offset == offset, (
                        f"the commit of {offset} for {group} was acknowledged, and there is {at}"
                    )
                    self._seen_bookmarks.add(group)
        lost = list(GroupLedger.lost(acknowledged, {(at.topic, at.partition): it.offset for at, it in found.items()}))
        assert not lost, lost

    # confluent-kafka

    def _write(self) -> None:
        ledger, number = self.acknowledged[CONFLUENT], 0

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                ledger.errors.append(str(error))
            else:
                waited_s, value = message.latency() or 0.0, message.value() or b""
                ledger.acknowledge(message.partition() or 0, message.offset(), value, waited_s)

        producer = Producer(_config(self.bootstrap_servers, enable_idempotence=True, linger_ms=2), logger=quiet)
        while not self._stop_writing.wait(self.pause_s):
            for _ in range(self.batch):
                producer.produce(CONFLUENT, b"%d" % number, partition=number % PARTITIONS, on_delivery=note)
                number += 1
            producer.poll(0)
        left = producer.flush(ENDS_WITHIN_S)
        if left:
            ledger.errors.append(f"{left} records were not acknowledged within {ENDS_WITHIN_S} s")

    def _write_transactions(self) -> None:
        ledger, number = self.decided[CONFLUENT_TRANSACTIONS], 0
        producer = self._new_transactional_producer()
        while not self._stop_writing.wait(self.pause_s):
            value, number = b"%d" % number, number + 1
            try:
                self._write_transaction(producer, value, commits=number % _ABORTS_ONE_IN != 0)
            except KafkaException as error:
                ledger.errors.append(str(error))
                if error.args[0].txn_requires_abort():
                    with suppress(KafkaException):
                        _until_it_is_no_passing_error(partial(producer.abort_transaction, CALL_TIMEOUT_S))
                        ledger.aborted.add(value)
                        continue
                ledger.unknown.add(value)
                producer = self._new_transactional_producer()

    def _new_transactional_producer(self) -> Producer:
        config = _config(self.bootstrap_servers, transactional_id=CONFLUENT_TRANSACTIONS, linger_ms=2)
        while True:
            producer = Producer(config, logger=quiet)
            with suppress(KafkaException):
                _until_it_is_no_passing_error(partial(producer.init_transactions, CALL_TIMEOUT_S))
                return producer

    def _write_transaction(self, producer: Producer, value: bytes, *, commits: bool) -> None:
        ledger, began_s = self.decided[CONFLUENT_TRANSACTIONS], time.monotonic()
        producer.begin_transaction()
        for index in range(PARTITIONS):
            producer.produce(CONFLUENT_TRANSACTIONS, value, partition=index)
        if not commits:
            # Otherwise there is nothing to abort, or librdkafka still waits for its AddPartitionsToTxn, and fails.
            producer.flush(CALL_TIMEOUT_S)
            _until_it_is_no_passing_error(partial(producer.abort_transaction, CALL_TIMEOUT_S))
            ledger.aborted.add(value)
        else:
            _until_it_is_no_passing_error(partial(producer.commit_transaction, CALL_TIMEOUT_S))
            ledger.commit(value, time.monotonic() - began_s)

    def _write_bookmarks(self) -> None:
        with Cluster(self.bootstrap_servers, timeout_s=60) as cluster:
            number = 0
            while not self._stop_writing.wait(2 * self.pause_s):
                group, number = f"{BOOKMARKS}-{number}", number + 1
                with suppress(ClientError):  # not acknowledged, for whatever reason
                    commit_offsets(cluster, group, {_BOOKMARKED: number})
                    self.bookmarks[group] = number

    def _read(self) -> None:
        """Reads as a member of the group, until everything is read and committed or the load stops."""
        config = _config(
            self.bootstrap_servers,
            group_id=GROUP,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy="range",
        )
        consumer = Consumer(config, logger=quiet)
        consumer.subscribe(list(TOPICS))
        commit_at_s = time.monotonic()
        while not self._stop_reading.is_set():
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    self.group.deliver((message.topic() or "", message.partition() or 0), message.offset() or 0)
                elif error.code() not in OF_A_BROKER_AWAY:
                    self.group.errors.append(str(error))
            if time.monotonic() > commit_at_s:
                self._commit(consumer)
                commit_at_s = time.monotonic() + _COMMIT_EVERY_S
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        with suppress(KafkaException):  # not acknowledged, for whatever reason
            positions = [it for it in consumer.position(consumer.assignment()) if it.offset >= 0]
            if positions:
                for it in consumer.commit(offsets=positions, asynchronous=False) or ():
                    if it.error is None:
                        self.group.commit({(it.topic, it.partition): it.offset})


def _until_it_is_no_passing_error(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


@contextmanager
def _thread(work: Callable[[], None]) -> Iterator[threading.Thread]:
    """Joined in the end; what it raised is raised then."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join(ENDS_WITHIN_S)
    assert not thread.is_alive(), "a client does not come to an end"
    if raised:
        raise raised[0]


class JavaClients:
    """A process with two producers and a member of the group. What it prints is noted in the load's ledgers."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._wrote_all = threading.Event()

    def __enter__(self) -> Self:
        jars = classpath(JARS)
        environment = java_environment() | {"CLASSPATH": os.pathsep.join([str(compile_java(_SOURCE, jars)), jars])}
        arguments = [self._load.bootstrap_servers, JAVA, JAVA_TRANSACTIONS, GROUP, ",".join(TOPICS)]
        numbers = [PARTITIONS, self._load.batch, round(self._load.pause_s * 1000), _ABORTS_ONE_IN]
        log = f"-Dlog4j2.configurationFile={LOGGING}"
        self._process = subprocess.Popen(
            [str(java()), *OPTIONS, log, "Clients", *arguments, *map(str, numbers)],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        return self

    def finish_writing(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("finish writing\n")
        self._process.stdin.flush()
        assert self._wrote_all.wait(ENDS_WITHIN_S), "the Java producers do not come to an end"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                if kind is None:
                    assert process.wait(ENDS_WITHIN_S) == 0, "the Java clients failed"
            finally:
                process.kill()
                self._listener.join()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._note(*line.rstrip("\n").split(" ", 1))
        self._wrote_all.set()

    def _note(self, what: str, text: str = "") -> None:
        load = self._load
        acknowledged, decided, group = load.acknowledged[JAVA], load.decided[JAVA_TRANSACTIONS], load.group
        match what, text.split(" "):
            case "acknowledged", [partition, offset, number, waited_ms]:
                known = None if offset == "-1" else int(offset)
                acknowledged.acknowledge(int(partition), known, number.encode(), int(waited_ms) / 1000)
            case "refused", _:
                acknowledged.errors.append(text)
            case "committed", [number, waited_ms]:
                decided.commit(number.encode(), int(waited_ms) / 1000)
            case "aborted", [number]:
                decided.aborted.add(number.encode())
            case "unknown", [number]:
                decided.unknown.add(number.encode())
            case "failed", _:
                decided.errors.append(text)
            case "delivered", [topic, partition, offsets]:
                group.deliver((topic, int(partition)), *map(int, offsets.split(",")))
            case "group-committed", [topic, partition, offset]:
                group.commit({(topic, int(partition)): int(offset)})
            case "wrote-all", _:
                self._wrote_all.set()
            case _:
                group.errors.append(f"{what} {text}")


def read_all(bootstrap_servers: str) -> dict[str, Found]:
    """The committed values of all partitions, by topic and offset."""
    config = _config(bootstrap_servers, group_id="check", enable_auto_commit=False, enable_partition_eof=True)
    consumer = Consumer(config | {"check.crcs": True, "auto.offset.reset": "error"}, logger=quiet)
    spots = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
    found: dict[Spot, dict[int, bytes]] = {spot: {} for spot in spots}
    unread = set(spots)
    consumer.assign([TopicPartition(*spot, OFFSET_BEGINNING) for spot in spots])

    def read() -> bool:
        for message in consumer.consume(1000, 1):
            spot, error = (message.topic() or "", message.partition() or 0), message.error()
            if error is None:
                found[spot][message.offset() or 0] = message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(spot)
            else:
                assert error.code() in OF_A_BROKER_AWAY, error
        return not unread

    try:
        eventually(read, "all is read", within_s=ENDS_WITHIN_S)
    finally:
        consumer.close()
    return {topic: [found[topic, number] for number in range(PARTITIONS)] for topic in TOPICS}


def by_spot(found: Mapping[str, Sequence[Mapping[int, bytes]]]) -> dict[Spot, Mapping[int, bytes]]:
    return {(topic, number): values for topic, some in found.items() for number, values in enumerate(some)}
