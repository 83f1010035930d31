"""Copies records that a share group gives up to its dead-letter topic (KIP-1191). Kafka's `ShareGroupDLQStateManager`.

A letter goes to the partition of the topic that has the number of its own partition, modulo their count. It is appended
here, or by a Produce to the broker that leads that partition, in both cases with acks=all, and is complete when it is
committed. Until then its records are ARCHIVING in the share coordinator: after a crash it is copied again, unless it is
in the topic. To check that, the partition of the topic is read from its start, if this broker leads it. If another one
does, a crash in between leaves a letter twice.

`copy` raises transient errors, and is called again after a pause. A permanent error is logged once, and the letter is
given up, as in Kafka: its records are archived without a copy. This is so for

* a topic that does not begin with errors.deadletterqueue.topic.name.prefix, or begins with two underscores;
* a topic without errors.deadletterqueue.group.enable, which its owner sets;
* a topic that does not exist, unless errors.deadletterqueue.auto.create.topics.enable;
* a topic, or its leader, that refuses the records for good.

Kafka gives up after five attempts; here transient errors are retried without limit.

MAX_COPYING letters are copied at a time and MAX_WAITING wait for that; beyond them `copy` raises at once.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

import attrs
from kwire_protocol.errors import RETRIABLE, ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from kwire.client.errors import ClientError
from kwire.groups.config import SharePartitionSettings
from kwire.groups.settings import GroupSettings
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.image import TopicImage
from kwire.peers.peers import Peers
from kwire.peers.sending import TIMEOUT_S, on_set
from kwire.replicas.acknowledging import ALL_IN_SYNC
from kwire.replicas.roles import NO_LEADER
from kwire.replicas.validation import check_produced
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future
from kwire.share.leader.counts import SharingCounts
from kwire.share.leader.effects import DeadLetter
from kwire.share.leader.letter_records import MAX_READ_BYTES, copied, letters, read_originals

if TYPE_CHECKING:
    from kwire.metadata.service import MetadataService
    from kwire.replicas.partition import Partition
    from kwire.replicas.table import PartitionTable

log = logging.getLogger(__name__)

ENABLED: Final = "errors.deadletterqueue.group.enable"
"""The configuration of a topic by which its owner allows groups to use it."""

MAX_COPYING: Final = 16
MAX_WAITING: Final = 10_000
_MAX_LOGGED: Final = 1_000
_DEFAULT: Final = -1
_PRODUCE_VERSION: Final = 13

_PASSING: Final = RETRIABLE | {ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.TOPIC_ALREADY_EXISTS}
"""The errors after which a letter is copied later. There may be more brokers then, or another creates the topic."""


class DeadLetters:
    """The dead letters of all share partitions of this broker. `peers` is for nothing else."""

    def __init__(
        self,
        metadata: MetadataService,
        partitions: PartitionTable,
        settings: GroupSettings,
        peers: Peers,
        clock: Clock,
        counts: SharingCounts,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._settings = settings
        self._peers = peers
        self._clock = clock
        self._counts = counts
        self._copying = 0
        self._waiting: deque[Future[None]] = deque()
        self._logged: set[tuple[str, str, str]] = set()

    async def copy(self, group_id: str, partition: Partition, letter: DeadLetter) -> int:
        """Copies the first of the letter's records, and returns the last offset that is complete.

        Raises KafkaError if no record is known to be copied, and the caller has to retry later.
        """
        await self._acquire_slot()
        try:
            return await self._copy_some(group_id, partition, letter)
        finally:
            self._release_slot()

    async def _copy_some(self, group_id: str, partition: Partition, letter: DeadLetter) -> int:
        settings = self._settings.of_share_partitions(group_id)
        name = settings.dead_letter_topic
        if not name:
            return letter.last_offset
        try:
            topic = await self._topic(name)
            there = await self._already_there(group_id, topic, partition, letter) if letter.is_doubtful else set()
            done = letter.first_offset - 1
            while done + 1 in there:
                done += 1
            if done >= letter.first_offset:
                return done
            last = min(there, default=letter.last_offset + 1) - 1
            done = await self._copy(group_id, settings, topic, partition, attrs.evolve(letter, last_offset=last))
        except KafkaError as error:
            if error.code in _PASSING:
                self._counts.failed_copies += 1
                raise
            self._counts.lost_dead_letters += letter.last_offset - letter.first_offset + 1
            self._log_failure(group_id, partition, letter, name, error)
            return letter.last_offset
        self._counts.dead_letters += done - letter.first_offset + 1
        return done

    async def _already_there(
        self, group_id: str, topic: TopicImage, partition: Partition, letter: DeadLetter
    ) -> set[int]:
        """Returns the letter's offsets that are in the topic, as far as this broker can detect."""
        index = partition.index % len(topic.partitions)
        found: set[int] = set()
        if topic.partitions[index].leader != self._partitions.node_id:
            return found
        dead = self._partitions.find(topic.topic_id, index)
        offset, end = dead.log_start_offset, dead.log_end_offset
        while 0 <= offset < end:
            try:
                read = dead.read(offset, max_bytes=MAX_READ_BYTES, max_offset=end, min_one_batch=True)
                piece = await dead.arrived(read)
                content = memoryview(piece.read())
            except OSError as error:
                raise dead.storage_error(error) from error
            except KafkaError as error:
                if error.code is not ErrorCode.CORRUPT_MESSAGE:
                    raise
                return found  # a duplicate letter is better than a lost one
            some, offset = copied(content, group_id, partition, letter.first_offset, letter.last_offset)
            found |= some
            await self._peers.loop.next_turn()
            if 0 <= offset < dead.log_start_offset:
                offset = dead.log_start_offset
        return found

    async def _copy(
        self,
        group_id: str,
        settings: SharePartitionSettings,
        topic: TopicImage,
        partition: Partition,
        letter: DeadLetter,
    ) -> int:
        originals: dict[int, Record] = {}
        through = letter.last_offset
        if settings.copies_dead_letters:
            originals, through = await read_originals(partition, letter.first_offset, letter.last_offset)
        max_bytes = self._metadata.topic_values(topic.name)["max.message.bytes"]
        assert isinstance(max_bytes, int)
        records = letters(
            group_id,
            partition,
            letter,
            originals,
            through,
            max_bytes=max_bytes,
            now_ms=self._clock.now_ms(),
        )
        await self._append(topic, partition.index % len(topic.partitions), build_batch(records))
        return letter.first_offset + len(records) - 1

    async def _topic(self, name: str) -> TopicImage:
        """Returns the topic. Raises KafkaError: INVALID_CONFIG if the group may not use it, errors of its creation."""
        config = self._metadata.config
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if name.startswith("__"):
            raise KafkaError(ErrorCode.INVALID_CONFIG, "its name begins with __")
        if not name.startswith(prefix):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"its name does not begin with {quoted(prefix)}")
        topic = self._metadata.topic(name)
        if topic is None:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                raise KafkaError(ErrorCode.INVALID_CONFIG, "there is no such topic, and none is created by itself")
            await self._create(name)
            topic = self._metadata.topic(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not self._metadata.topic_values(name)[ENABLED]:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"it does not have {ENABLED}=true")
        return topic

    async def _create(self, name: str) -> None:
        configs = [
            CreatableTopicConfig(ENABLED, "true"),
            # A letter has the time at which it was written. LogAppendTime would do as well, but Kafka sets this.
            CreatableTopicConfig("message.timestamp.type", "CreateTime"),
        ]
        response = await self._metadata.change(
            create_topics, CreateTopicsRequest([CreatableTopic(name, _DEFAULT, _DEFAULT, configs=configs)])
        )
        (result,) = response.topics
        # Another letter may have created it at the same time.
        if result.error_code and result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise KafkaError(ErrorCode(result.error_code), result.error_message)

    async def _append(self, topic: TopicImage, index: int, batch: bytes) -> None:
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        if leader == self._partitions.node_id:
            await self._append_here(topic, index, batch)
        else:
            await self._append_there(leader, topic, index, batch)

    async def _append_here(self, topic: TopicImage, index: int, batch: bytes) -> None:
        partition = self._partitions.find(topic.topic_id, index)
        now_ms = self._clock.now_ms()
        checked, header = check_produced(bytearray(batch), partition.rules, version=_PRODUCE_VERSION, now_ms=now_ms)
        result = partition.append(checked, header, acks=ALL_IN_SYNC, now_ms=now_ms)
        committed = partition.when_committed(result.last_offset, ALL_IN_SYNC)
        failure = None if committed is None else await committed
        if failure is not None:
            raise failure

    async def _append_there(self, leader: int, topic: TopicImage, index: int, batch: bytes) -> None:
        request = ProduceRequest(
            None,
            ALL_IN_SYNC,
            int(TIMEOUT_S * 1000),
            [TopicProduceData(topic.name, topic.topic_id, [PartitionProduceData(index, batch)])],
        )
        try:
            response = (await self._peers.send(leader, request, timeout_s=TIMEOUT_S)).unwrap()
        except ClientError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, error.message) from error
        for answer in (it for topic_response in response.responses for it in topic_response.partition_responses):
            if answer.error_code:
                raise KafkaError(ErrorCode(answer.error_code), answer.error_message)
            return
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {leader} returned no result for the batch")

    def _log_failure(
        self, group_id: str, partition: Partition, letter: DeadLetter, name: str, error: KafkaError
    ) -> None:
        """Logs the error once for each group, topic and reason: a group that rejects all records would fill the log."""
        reason = (group_id, name, str(error) if error.code is ErrorCode.INVALID_CONFIG else error.code.name)
        if reason in self._logged:
            return
        if len(self._logged) >= _MAX_LOGGED:
            self._logged.clear()
        self._logged.add(reason)
        log.warning(
            "the records %d to %d of %s-%d are archived without a dead letter, and so are others: group %a cannot use "
            "the dead-letter topic %a: %s",
            letter.first_offset,
            letter.last_offset,
            partition.topic,
            partition.index,
            group_id,
            name,
            error,
        )

    async def _acquire_slot(self) -> None:
        if self._copying < MAX_COPYING:
            self._copying += 1
        elif len(self._waiting) < MAX_WAITING:
            future: Future[None] = Future()
            self._waiting.append(future)
            await future
        else:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many dead letters wait to be copied")

    def _release_slot(self) -> None:
        if self._waiting:
            # Each copy has its own turn of the event loop, since many in a row may complete at once.
            on_set(self._peers.loop.next_turn(), self._waiting.popleft().set)
        else:
            self._copying -= 1
