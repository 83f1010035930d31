"""Every share-partition that this broker coordinates. Passes requests to the shards of `__share_group_state`.

`kwire.coordinators.runtime` drives the shards, one `ShareStateShard` for each partition. Kafka's
`ShareCoordinatorService`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.config.server import ServerConfig
from kwire.coordinators.durations import Durations
from kwire.coordinators.effects import Effect, response_error
from kwire.coordinators.internal_topic import InternalTopic
from kwire.coordinators.runtime import CoordinatorRuntime
from kwire.coordinators.service import CoordinatorService
from kwire.metadata.service import MetadataService
from kwire.replicas.acknowledging import Acknowledgement
from kwire.replicas.table import PartitionTable
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future, drive
from kwire.runtime.loop import Loop
from kwire.runtime.slices import Slices
from kwire.share.coordinator.config import ShareStateConfig
from kwire.share.coordinator.effects import Prune
from kwire.share.coordinator.kinds import WRITE, Kind, PartitionRequest, Result
from kwire.share.coordinator.state import SharePartitionKey

if TYPE_CHECKING:
    from kwire.share.coordinator.shard import ShareStateShard

log = logging.getLogger(__name__)

PARTITIONS_PER_SLICE: Final = 500
"""The number of partitions of one request that are handled before other work gets a turn."""


class ShareStateService(CoordinatorService["ShareStateShard"]):
    """`answer` is for requests of any broker, `answer_one` for this broker's own questions.

    Both wait until the appended records are committed. A partition that fails has an error in its own result.
    """

    def __init__(
        self,
        config: ServerConfig,
        topic: InternalTopic,
        partitions: PartitionTable,
        metadata: MetadataService,
        clock: Clock,
        loop: Loop,
    ) -> None:
        shard_config = ShareStateConfig(
            updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
            cold_snapshot_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
            prune_interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
        )
        self._partitions = partitions
        self._loop = loop
        self._clock = clock
        self.requests: Counter[str] = Counter()
        """The number of share-partitions in requests, by the name of the kind."""
        self.write_times = Durations()
        self._write_timeout_ms = config.share_coordinator_write_timeout_ms

        def partition_count(topic_id: Uuid) -> int | None:
            found = metadata.image.topics_by_id.get(topic_id)
            return None if found is None else len(found.partitions)

        def make_shard(_index: int) -> ShareStateShard:
            # Most brokers have no share states, and need not import these messages.
            from kwire.share.coordinator.shard import ShareStateShard

            return ShareStateShard(shard_config, partition_count=partition_count)

        self.runtime = CoordinatorRuntime(topic, clock, "share states", make_shard, self._do_other)

    async def answer(self, kind: Kind, request: Any) -> Any:
        """Returns the response to a whole request. Like Kafka's, it is empty without a group id or any partition."""
        if not request.group_id or not all(topic.partitions for topic in request.topics):
            return kind.response({})
        began_ms = self._clock.monotonic_ms()
        results: dict[Uuid, dict[int, Result]] = {}
        waiting: dict[int, list[SharePartitionKey]] = {}
        slices = Slices(self._loop, PARTITIONS_PER_SLICE)
        for topic in request.topics:
            for requested in topic.partitions:
                key = SharePartitionKey(request.group_id, topic.topic_id, requested.partition)
                index, result = self._perform(kind, key, requested)
                results.setdefault(key.topic_id, {})[key.partition] = result
                if result.error_code == ErrorCode.NONE:
                    waiting.setdefault(index, []).append(key)
                await slices.after(1)
        # All appended records are awaited together.
        until_ms = self._clock.monotonic_ms() + self._write_timeout_ms
        for index, future in [(index, self._when_committed(index)) for index in waiting]:
            error = await self._outcome(future, until_ms)
            if error is not None:
                for key in waiting[index]:
                    results[key.topic_id][key.partition] = kind.refused(key.partition, error)
        self._took(kind, began_ms)
        return kind.response(results)

    async def answer_one(self, kind: Kind, key: SharePartitionKey, requested: PartitionRequest) -> Result:
        """The result for one share-partition of this broker's own request."""
        began_ms = self._clock.monotonic_ms()
        index, result = self._perform(kind, key, requested)
        if result.error_code == ErrorCode.NONE:
            until_ms = began_ms + self._write_timeout_ms
            error = await self._outcome(self._when_committed(index), until_ms)
            if error is not None:
                result = kind.refused(key.partition, error)
        self._took(kind, began_ms)
        return result

    def _took(self, kind: Kind, began_ms: int) -> None:
        if kind is WRITE:
            self.write_times.add(self._clock.monotonic_ms() - began_ms)

    def other_topic_deleted(self, topic: str, topic_id: Uuid) -> None:  # noqa: ARG002
        """Deletes the states of the topic's partitions."""
        self.runtime.for_each(lambda shard, now: shard.forget_topics({topic_id}, now=now))

    def _perform(self, kind: Kind, key: SharePartitionKey, requested: PartitionRequest) -> tuple[int, Result]:
        """Returns the partition of `__share_group_state` (-1 on an error), and the result, valid once its records are
        committed."""
        try:
            index, shard, now = self.runtime.find(key.text)
        except KafkaError as error:
            return -1, kind.refused(key.partition, error)
        self.requests[kind.name] += 1
        future: Future[Result] = Future()
        self.runtime.perform(index, getattr(shard, kind.name)(key, requested, future, now=now))
        return index, future.value

    def _when_committed(self, index: int) -> Acknowledgement | KafkaError | None:
        try:
            return self.runtime.topic.when_committed(index)
        except KafkaError as error:
            return error

    async def _outcome(self, future: Acknowledgement | KafkaError | None, until_ms: int) -> KafkaError | None:
        """The error, if the records are not committed by then. A coroutine without a connection has no such limit: it
        waits until a replica that does not answer has left the ISR.
        """
        if not isinstance(future, Acknowledgement):
            error = future
        else:
            future.wait_at_most(max(until_ms - self._clock.monotonic_ms(), 0))
            error = await future
        return None if error is None else KafkaError(response_error(error.code), error.message)

    def _do_other(self, index: int, effect: Effect) -> Iterable[Effect]:
        assert isinstance(effect, Prune)
        drive(self._prune(index, effect.before_offset))
        return []

    async def _prune(self, index: int, before_offset: int) -> None:
        """Deletes records once the snapshots that replace them are committed, like Kafka's `performRecordPruning`.

        If another node is elected before that, it has the records, and may not have the snapshots.
        """
        topic, shard = self.runtime.topic, self.runtime.shard_at(index)
        if shard is None:
            return
        is_done = False
        try:
            await topic.committed(index)
            # The wait ends while the partition advances its high watermark, and may have outlasted the shard.
            await self._loop.next_turn()
            if shard is self.runtime.shard_at(index):
                partition = self._partitions.find(topic.name, index)
                partition.delete_records_before(before_offset, now_ms=self._clock.now_ms())
                is_done = True
        except KafkaError as error:
            log.debug("%s-%d could not be pruned before %d: %s", topic.name, index, before_offset, error)
        if shard is self.runtime.shard_at(index):
            self.runtime.perform(index, shard.pruned(before_offset, done=is_done, now=self.runtime.now()))
