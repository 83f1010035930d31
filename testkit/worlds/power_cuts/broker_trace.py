"""Traces of a whole broker: topics come and go, records are produced, groups commit, and it stops and starts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import attrs
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.records import Record, build_batch, iter_headers, read_header
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.log.log import Log

from kwire.config.server import ServerConfig
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.names.topic_names import is_internal
from kwire.node.broker import Broker
from kwire.replicas.acknowledging import ALL_IN_SYNC
from kwire.replicas.partition import Partition
from kwire.runtime.futures import at_once
from testkit.metadata.harness import NOW_MS, FakeClock
from testkit.scenes.direct.broker_driver import BrokerDriver
from testkit.scenes.partition_files import log_files
from testkit.worlds.power_cuts.checking import check_log, contents, sent_of
from testkit.worlds.power_cuts.folds import check_offsets, is_of_a_restart
from testkit.worlds.power_cuts.history import Batch, Cleaned, Flushed, Found, PartitionHistory, Sent, StartMoved
from testkit.worlds.power_cuts.sweep import Moment

T = TypeVar("T")
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.segment.delete.delay.ms": "0",
}
Key = tuple[bytes, int]
"""Topic id and partition: a topic of the same name is another one."""
COMMIT_VERSION = 8


@attrs.define(eq=False)
class TopicStory:
    """The times of the request and answer of a topic's creation and of its deletion, in changes of the disk."""

    created: float = float("inf")
    deletion_began: float = float("inf")
    deleted: float = float("inf")


class BrokerTrace:
    """`steps` is what happens after the broker was opened. The helpers do one thing each, and note what came of it."""

    settings: Mapping[str, str] = SETTINGS

    def __init__(self, name: str, steps: Callable[[Any], None]) -> None:
        self.name = name
        self.steps = steps
        self.histories: dict[Key, PartitionHistory] = {}
        self.topics: dict[bytes, TopicStory] = {}
        self.producer_ids: list[tuple[int, int]] = []
        self.sequences: dict[tuple[bytes, int], int] = {}
        self.times = [(0, NOW_MS)]
        """Changes, and the time (ms) from each of them on."""
        self.ids = 0
        self.salt = 0

    def run(self, disk: FaultyDisk) -> None:
        self.disk = disk
        self.open()
        self.steps(self)

    # -- what happens

    def open(self) -> None:
        self._open_after(Moment(self._now, lost_power=False))

    def _open_after(self, moment: Moment) -> dict[Key, list[Batch]]:
        """Notes what the restart appends, and returns what it has found."""
        began = self._now
        self.driver = self._open_broker(self.disk, self.ids, self._time_ms(began))
        self.broker = self.driver.broker
        self.ids += 100
        found = {}
        for key, batches in self._check_logs(self.broker, moment).items():
            history = self._history(key)
            found[key] = sent_of(batches, history.at(moment.position))
            for batch in batches[len(found[key]) :]:
                sent = Sent(began, batch)
                sent.answered = self._now
                history.events.append(sent)
        with self._appending():
            self.driver.flush()
        return found

    def _time_ms(self, position: float) -> int:
        return next(time_ms for at, time_ms in reversed(self.times) if at <= position)

    def _open_broker(self, disk: FaultyDisk, ids: int, time_ms: int) -> BrokerDriver:
        clock = FakeClock(ids, time_ms)
        return BrokerDriver(Broker.open(ServerConfig.from_properties(self.settings), disk, clock), clock)

    def close(self) -> None:
        """The clean stop: everything is on the medium."""
        ends = {key_of(it): Flushed(self._now, it.log_end_offset) for it in self.broker.partitions}
        self.broker.close()
        for key, flushed in ends.items():
            flushed.answered = self._now
            self._history(key).events.append(flushed)

    def die(self) -> None:
        """Kills the process; the next `open` is on the same machine, which keeps running."""
        self.broker.log_dirs.abandon()

    def create_topic(self, name: str, configs: Mapping[str, str] | None = None) -> None:
        entries = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
        with self._appending():
            request = CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=entries)])
            response = at_once(self.broker.metadata.change(create_topics, request))
            assert response.topics[0].error_code == ErrorCode.NONE, response
        self.topics[response.topics[0].topic_id] = TopicStory(created=self._now)

    def delete_topic(self, name: str) -> None:
        topic = self.broker.metadata.image.topics[name]
        story = self.topics[topic.topic_id]
        story.deletion_began = self._now
        with self._appending():
            at_once(self.broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=[name]), version=5))
        story.deleted = self._now

    def produce(self, name: str, *counts: int, producer_id: int = 7, flushed: bool = False) -> None:
        """A batch of so many records each; `flushed`: the topic has flush.messages=1."""
        partition = self.broker.partitions.find(name, 0)
        for count in counts:
            self.salt += 1
            key = partition.topic_id, producer_id
            sequence = self.sequences.get(key, 0)
            records = [
                Record(number, 1000 + self.salt, b"%d" % number, bytes([self.salt % 256]) * 50)
                for number in range(count)
            ]
            batch = memoryview(
                bytearray(build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence))
            )
            promise = Flushed(self._now, partition.log_end_offset + count)
            with self._appending():
                result = partition.append(batch, read_header(batch), acks=-1, now_ms=1000)
                acknowledged = partition.when_committed(result.last_offset, ALL_IN_SYNC)
                is_held, answered = acknowledged is not None, self._now
                self.driver.flush()
                if is_held:
                    answered = self._now
            if flushed:
                promise.answered = answered
                self._history(key_of(partition)).events.append(promise)
            self.sequences[key] = sequence + count

    def commit(self, group_id: str, topic: str, offset: int) -> None:
        partition = OffsetCommitRequestPartition(0, offset)
        request = OffsetCommitRequest(group_id, topics=[OffsetCommitRequestTopic(topic, partitions=[partition])])
        with self._appending():
            at_once(self.broker.groups.runtime.coordinator_of(group_id))
            response = self._answer_of(self.broker.groups.commit(request, api_version=COMMIT_VERSION))
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE, response

    def delete_records(self, name: str, offset: int) -> None:
        partition = self.broker.partitions.find(name, 0)
        moved = StartMoved(self._now, offset)
        self._history(key_of(partition)).events.append(moved)
        partition.delete_records_before(offset, now_ms=1000)
        moved.answered = self._now

    def roll(self, name: str) -> None:
        log_files(self.broker.partitions.find(name, 0)).roll(1000)

    def flush(self, name: str) -> None:
        partition = self.broker.partitions.find(name, 0)
        flushed = Flushed(self._now, partition.log_end_offset)
        log_files(partition).flush()
        flushed.answered = self._now
        self._history(key_of(partition)).events.append(flushed)

    def checkpoint(self) -> None:
        for folder, checkpoints in self.broker.housekeeping.take_checkpoints():
            folder.write(checkpoints)

    def clean(self) -> None:
        """The cleaner has its turn, with its threads; they take turns with the loop, so that the order is the same."""
        for it in self.broker.partitions:
            if it.rules.compacted:
                self._history(key_of(it)).events.append(Cleaned(self._now, log_files(it).active.base_offset))
        trio.run(self.broker.cleaner.clean_all)

    def remove_deleted(self) -> None:
        folder = self.broker.log_dirs.metadata
        deleted = folder.take_deleted(self.broker.clock.now_ms())
        if deleted is not None:
            folder.remove(deleted)

    def take_producer_id(self) -> None:
        self.producer_ids.append((at_once(self.broker.producer_ids.draw()), self._now))

    def _answer_of(self, handling: Coroutine[Any, Any, T]) -> T:
        try:
            handling.send(None)
            self.driver.flush()
            handling.send(None)
        except StopIteration as answered:
            value: T = answered.value
            return value
        raise AssertionError("the answer waits for more than a flush")

    @contextmanager
    def _appending(self) -> Iterator[None]:
        """Whatever is appended within, to whichever log, is noted."""
        began = self._now
        ends = {key_of(it): it.log_end_offset for it in self.broker.partitions}
        logs = {key_of(it): log_files(it) for it in self.broker.partitions}
        yield
        logs.update({key_of(it): log_files(it) for it in self.broker.partitions})
        for key, log in logs.items():
            for batch in _batches_from(log, ends.get(key, 0)):
                sent = Sent(began, batch)
                sent.answered = self._now
                self._history(key).events.append(sent)

    @property
    def _now(self) -> int:
        return len(self.disk.journal)

    def _history(self, key: Key) -> PartitionHistory:
        return self.histories.setdefault(key, PartitionHistory())

    # -- what must hold

    def check(self, disk: FaultyDisk, moment: Moment) -> None:
        driver = self._open_broker(disk, 50_000, self._time_ms(moment.position))
        broker = driver.broker
        self._check_topics(broker, moment)
        self._check_logs(broker, moment)
        driver.flush()
        check_offsets(broker)
        self._check_more(driver, moment)
        fresh = at_once(broker.producer_ids.draw())
        assert fresh not in [given for given, at in self.producer_ids if at <= moment.position], f"{fresh} again"
        ends = {}
        for partition in broker.partitions:
            batch = memoryview(bytearray(build_batch([Record(0, 0, b"afterwards", b"afterwards")])))
            partition.append_own(batch, read_header(batch), now_ms=1000)
            ends[key_of(partition)] = contents(log_files(partition))
        broker.close()
        broker = self._open_broker(disk, 60_000, driver.now_ms).broker
        assert broker.log_dirs.metadata.clean_shutdown
        assert {key_of(it): contents(log_files(it)) for it in broker.partitions} == ends
        broker.log_dirs.abandon()

    def _check_more(self, driver: BrokerDriver, moment: Moment) -> None:
        """Checks of single traces on the reopened broker."""

    def _check_topics(self, broker: Broker, moment: Moment) -> None:
        known = {topic.topic_id for topic in broker.metadata.image.topics.values()}
        for topic_id, story in self.topics.items():
            if story.created <= moment.position < story.deletion_began:
                assert topic_id in known, f"the topic {topic_id.hex()} is gone"
            if story.deleted <= moment.position:
                assert topic_id not in known, f"the deleted topic {topic_id.hex()} is back"

    def _check_logs(self, broker: Broker, moment: Moment) -> dict[Key, list[Batch]]:
        """Checks that each log is the beginning of its timeline, then the restart's batches. Returns the batches."""
        return {
            key_of(it): check_log(
                log_files(it),
                self._history(key_of(it)).at(moment.position),
                lost_power=moment.lost_power,
                may_follow=partial(is_of_a_restart, it.topic),
            )
            for it in broker.partitions
        }

    def next_life(self, moment: Moment) -> BrokerTrace:
        return NextBrokerLife(self, moment)


class NextBrokerLife(BrokerTrace):
    """A life that restarts, and continues in every topic."""

    def __init__(self, before: BrokerTrace, moment: Moment) -> None:
        super().__init__(f"{before.name}, a life later", lambda _: self._continue())
        self.times = [(0, before._time_ms(moment.position))]
        self.ids = 20_000
        self.salt = before.salt + 100
        self.moment = moment
        for key, history in before.histories.items():
            known = history.at(moment.position)
            if moment.lost_power:
                known.answered_end = known.durable_end
            self.histories[key] = PartitionHistory(known)
        for topic_id, story in before.topics.items():
            happened = [at if at <= moment.position else float("inf") for at in (story.created, story.deleted)]
            began = 0 if story.deletion_began <= moment.position else float("inf")
            self.topics[topic_id] = TopicStory(happened[0], began, happened[1])
        self.producer_ids = [(given, 0) for given, at in before.producer_ids if at <= moment.position]

    def open(self) -> None:
        found = self._open_after(Moment(0, self.moment.lost_power))
        for partition in self.broker.partitions:
            key = key_of(partition)
            event = Found(self._now, found[key], partition.log_start_offset, self.moment.lost_power)
            event.answered = self._now
            self._history(key).events.insert(0, event)

    def _continue(self) -> None:
        names = [name for name in self.broker.partitions.by_name if not is_internal(name)]
        for name in names:
            self.produce(name, 2, 1, producer_id=50)
            self.flush(name)
        self.take_producer_id()
        self.checkpoint()
        self.commit("later", "t", 5)
        for name in names:
            self.roll(name)
            self.produce(name, 1, producer_id=50)
        self.close()


def key_of(partition: Partition) -> Key:
    return partition.topic_id, partition.index


def _batches_from(log: Log, offset: int) -> list[Batch]:
    found: list[Batch] = []
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes=1 << 20, max_offset=log.log_end_offset).read()
        for position, header in iter_headers(data):
            end = position + header.size_in_bytes
            found.append(Batch(header.base_offset, header.next_offset, bytes(data[position:end])))
        offset = found[-1].end
    return found
