"""A whole broker on a disk in memory, which may refuse appends."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

import attrs
import trio
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.records import read_header
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.coordinators.effects import Step
from kwire.metadata.log import METADATA_TOPIC
from kwire.names.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kwire.node.broker import Broker
from kwire.replicas.partition import Partition
from testkit.metadata.harness import FakeClock
from testkit.scenes.direct.broker_driver import BrokerDriver, TopicPartition
from testkit.scenes.internal_topics import create_internal_topics
from testkit.scenes.partition_files import log_files

ID_EXPIRATION_MS = 1_800_000
SETTINGS = (
    "transaction.state.log.num.partitions=1",
    "offsets.topic.num.partitions=1",
    f"transactional.id.expiration.ms={ID_EXPIRATION_MS}",
    "transaction.remove.expired.transaction.cleanup.interval.ms=600000",
    "log.segment.delete.delay.ms=0",
)

TOPICS: dict[str, tuple[int, Mapping[str, str]]] = {
    "t": (2, {"retention.ms": "1800000"}),
    "flushed": (1, {"flush.messages": "1"}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "100000"}),
}
COMPACTED: TopicPartition = ("compacted", 0)
PARTITIONS: tuple[TopicPartition, ...] = (("t", 0), ("t", 1), ("flushed", 0), COMPACTED)
DELETABLE = PARTITIONS[:3]
OFFSETS: TopicPartition = (CONSUMER_OFFSETS, 0)
STATE: TopicPartition = (TRANSACTION_STATE, 0)
WATCHED = (*PARTITIONS, OFFSETS)

_NO_MEMORY = errno.ENOMEM
"""The error of a disk that does not take its log dir out of service."""


class Scene(BrokerDriver):
    """`failing`: appends to these partitions fail for now."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.before_operation = self._refuse
        self.failing: set[TopicPartition] = set()
        clock = FakeClock()
        super().__init__(_open_broker(self.disk, clock), clock)
        for name, (count, configs) in TOPICS.items():
            settings = [CreatableTopicConfig(key, value) for key, value in configs.items()]
            self.call(CreateTopicsRequest([CreatableTopic(name, count, 1, configs=settings)], 1000), 7)
        create_internal_topics(self.broker)
        self._make_segments_small()

    def partition(self, tp: TopicPartition) -> Partition:
        return self.broker.partitions.find(*tp)

    def append(self, tp: TopicPartition, batch: memoryview) -> int:
        """Appends without any coordinator. Returns the base offset."""
        result = self.partition(tp).append(batch, read_header(batch), acks=-1, now_ms=self.now_ms)
        self.flush()
        return result.base_offset

    # -- chores

    def retain(self) -> None:
        trio.run(self.broker.housekeeping.apply_retention)

    def clean(self) -> None:
        trio.run(self.broker.cleaner.clean_all)

    def roll(self, tp: TopicPartition) -> None:
        log_files(self.partition(tp)).roll(self.now_ms)

    def checkpoint(self) -> None:
        for folder, checkpoints in self.broker.housekeeping.take_checkpoints():
            folder.write(checkpoints)

    def use_up_epochs(self, transactional_id: str, epoch: int) -> None:
        """Sets the epoch as if the producer of that id had ended very many transactions."""
        index, shard, now = self.broker.transactions.runtime.find(transactional_id)
        transaction = shard._transactions.get(transactional_id)
        assert transaction is not None
        step = Step(now)
        shard._transactions.append(step, attrs.evolve(transaction, producer_epoch=epoch))
        self.broker.transactions.runtime.perform(index, step.effects)

    # -- starts

    def restart(self, *, clean: bool) -> None:
        """Without a clean stop what was written is in the files, and nothing else is."""
        if clean:
            self.broker.close()
        else:
            self.broker.log_dirs.abandon()
        self.broker = _open_broker(self.disk, self.clock)
        self._make_segments_small()
        self.do_what_is_due()

    def _make_segments_small(self) -> None:
        for partition in self.broker.partitions:
            if partition.topic != METADATA_TOPIC:
                partition.log.config = attrs.evolve(partition.log.config, segment_bytes=700, index_interval_bytes=100)

    def _refuse(self, operation: str, path: str) -> None:
        folder, _, name = path.rpartition("/")
        if operation == "append" and name.endswith(".log") and self.failing:
            topic, _, index = folder.rpartition("-")
            if (topic, int(index)) in self.failing:
                raise OSError(_NO_MEMORY, os.strerror(_NO_MEMORY), path)


def _open_broker(disk: MemoryDisk, clock: FakeClock) -> Broker:
    return Broker.open(load_config(settings=SETTINGS), disk, clock)
