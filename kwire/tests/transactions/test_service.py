"""The driver of the transaction machines, on a broker in memory whose flushes the test triggers."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.end_txn import EndTxnRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.coordinators.deadlines import PAUSES_MS
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.node.broker import Broker
from kwire.replicas.partition import Partition
from kwire.replicas.roles import NO_LEADER, Follower
from kwire.runtime.futures import Future
from testkit.basics.futures import at_once, value_of
from testkit.metadata.harness import FakeClock
from testkit.scenes.direct import clients
from testkit.scenes.direct.broker_driver import BrokerDriver
from testkit.scenes.internal_topics import FEW_PARTITIONS, create_internal_topics


def flush(partition: Partition) -> None:
    gate = partition.flush_gate
    begun = gate.begin()
    begun.run()
    gate.finish(begun)


class Scene:
    """Topic `t` flushes every second record; producer `id` has sent one, and has ended its transaction."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.broker = Broker.open(load_config(settings=FEW_PARTITIONS), MemoryDisk(), self.clock)
        create_internal_topics(self.broker)
        config = CreatableTopicConfig("flush.messages", "2")
        at_once(
            self.broker.metadata.change(
                create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1, configs=[config])], 1000)
            )
        )
        self.partition = self.broker.partitions.find("t", 0)
        service = self.broker.transactions
        producer = at_once(service.init_producer_id(InitProducerIdRequest("id", 60_000)))
        ids = producer.producer_id, producer.producer_epoch
        self.next_producer = (ids[0], ids[1] + 1)
        assert service.enlist("id", *ids, "t", 0, adds=True) is None
        batch = memoryview(
            bytearray(
                build_batch(
                    [Record(timestamp=1000, value=b"v")],
                    producer_id=ids[0],
                    producer_epoch=ids[1],
                    base_sequence=0,
                    transactional=True,
                )
            )
        )
        self.partition.append(batch, read_header(batch), acks=-1, now_ms=self.clock.now_ms())
        assert at_once(service.end(EndTxnRequest("id", *ids, committed=True), transaction_version=2)).error_code == 0

    @property
    def state(self) -> str:
        return self.broker.transactions.describe("id").transaction_state

    def enlist(self, epoch: int | None = None) -> Future[KafkaError | None]:
        """Enlists the producer's next batch."""
        producer_id, next_epoch = self.next_producer
        future = self.broker.transactions.enlist(
            "id", producer_id, next_epoch if epoch is None else epoch, "t", 0, adds=True
        )
        assert future is not None
        return future

    def wait(self, by_ms: int) -> None:
        """Moves the clock, and lets the shard look whether its markers are in."""
        self.clock.time_ms += by_ms
        self.broker.transactions.runtime.perform(self.broker.transactions.runtime.find("id")[0], [])


def test_a_transaction_is_complete_when_its_marker_is_on_the_medium_and_it_is_written_once() -> None:
    scene = Scene()
    for _ in range(3):
        assert (scene.state, scene.partition.log_end_offset) == ("PrepareCommit", 2)
        scene.wait(PAUSES_MS.longest)
    flush(scene.partition)
    assert (scene.state, scene.partition.log_end_offset) == ("CompleteCommit", 2)


def test_markers_that_cannot_be_written_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.enlist()
    flush(scene.partition)
    role, scene.partition.role = scene.partition.role, Follower(NO_LEADER, 0)
    end = EndTxnRequest("id", *scene.next_producer, committed=True)
    assert at_once(scene.broker.transactions.end(end, transaction_version=2)).error_code == 0
    for _ in range(5):
        scene.wait(PAUSES_MS.longest)
    assert scene.state == "PrepareCommit"
    scene.partition.role = role
    scene.wait(PAUSES_MS.longest)
    flush(scene.partition)
    assert scene.state == "CompleteCommit"
    messages = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("markers cannot be written to t-0") for line in messages) == 1


def test_the_next_transaction_waits_for_the_marker_and_then_begins() -> None:
    scene = Scene()
    waiting = scene.enlist()
    assert not waiting.is_set
    flush(scene.partition)
    assert value_of(waiting) is None
    assert scene.state == "Ongoing"


def test_who_waits_for_the_marker_gets_an_error_when_its_producer_was_fenced_meanwhile() -> None:
    scene = Scene()
    waiting = scene.enlist(epoch=scene.next_producer[1] - 1)
    flush(scene.partition)
    error = value_of(waiting)
    assert error is not None
    assert error.code is ErrorCode.PRODUCER_FENCED


def test_who_has_waited_long_enough_for_the_marker_gets_an_error_that_can_be_retried() -> None:
    scene = Scene()
    waiting = scene.enlist()
    assert waiting.timeout_s == 0.1
    waiting.give_up()
    flush(scene.partition)
    error = value_of(waiting)
    assert error is not None
    assert error.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.state == "CompleteCommit"


def test_nobody_joins_whose_connection_broke_while_it_waited() -> None:
    scene = Scene()
    waiting = scene.enlist()
    scene.clock.time_ms += 100
    flush(scene.partition)
    assert not waiting.is_set
    assert scene.state == "CompleteCommit"


def flushing() -> tuple[BrokerDriver, tuple[int, int]]:
    """Every append is flushed before it is answered; producer `id` has its transaction open in `t`."""
    clock = FakeClock()
    driver = BrokerDriver(
        Broker.open(load_config(settings=[*FEW_PARTITIONS, "log.flush.interval.messages=1"]), MemoryDisk(), clock),
        clock,
    )
    create_internal_topics(driver.broker)
    driver.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), 7)
    error, producer = clients.init(driver, "id")
    assert error is ErrorCode.NONE
    batch = clients.Batch(("t", 0), producer, 0, ((b"k", b"v"),))
    assert clients.produce(driver, [batch], "id") == {("t", 0): (ErrorCode.NONE, 0)}
    return driver, producer


def test_a_fence_continues_as_soon_as_it_is_on_the_medium() -> None:
    driver, _ = flushing()
    assert clients.init(driver, "id")[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert clients.describe(driver, "id").transaction_state == "CompleteAbort"


def test_a_time_out_continues_as_soon_as_it_is_on_the_medium() -> None:
    driver, _ = flushing()
    driver.advance(clients.TIMEOUT_MS)
    assert clients.describe(driver, "id").transaction_state == "CompleteAbort"


def test_markers_are_in_when_the_end_of_a_transaction_is_answered() -> None:
    driver, producer = flushing()
    assert clients.end(driver, "id", producer, committed=True, version=2)[0] is ErrorCode.NONE
    assert clients.describe(driver, "id").transaction_state == "CompleteCommit"
