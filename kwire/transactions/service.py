"""Every transactional id that this broker coordinates. Passes requests to the shards of `__transaction_state`.

`kwire.coordinators.runtime` drives the shards, one `TransactionShard` for each partition. This module writes the
markers that they request in the partitions of a transaction: here, or by requests to the nodes that lead them
(`remote_markers.py`). A decision is as durable as flush.messages requires before its first marker is written: a power
cut must not undo it after readers have seen it.

Partitions of this node verify their transactions here, too, also for ids that another node coordinates
(`remote_coordinators.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import partial

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from kwire_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kwire_protocol.messages.write_txn_markers import WriteTxnMarkersResponse

from kwire.config.server import ServerConfig
from kwire.coordinators.effects import Effect
from kwire.coordinators.internal_topic import InternalTopic
from kwire.coordinators.runtime import CoordinatorRuntime, java_hash
from kwire.coordinators.service import CoordinatorService
from kwire.metadata.producer_ids import ProducerIds
from kwire.metadata.service import MetadataService
from kwire.peers.peers import peers_of
from kwire.peers.sending import Sender
from kwire.replicas.acknowledging import ALL_IN_SYNC
from kwire.replicas.roles import NO_LEADER
from kwire.replicas.table import PartitionTable
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future
from kwire.runtime.loop import Loop
from kwire.transactions.config import TransactionConfig
from kwire.transactions.effects import Ended, WriteMarkers
from kwire.transactions.listing import TransactionFilter
from kwire.transactions.remote_coordinators import RemoteCoordinators
from kwire.transactions.remote_markers import NEEDLESS, MarkersRequest, RemoteMarkers
from kwire.transactions.remote_partitions import TxnProducer
from kwire.transactions.shard import TransactionShard
from kwire.transactions.transaction import EPOCH_BUMP_VERSION, TopicPartition
from kwire.transactions.waiting import Joined, UntilEnded, WaitingForEnd

log = logging.getLogger(__name__)

# An unknown partition was deleted, so no consumer can read what its marker would end.
_NEEDLESS = NEEDLESS | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class TransactionService(CoordinatorService[TransactionShard]):
    """A method that may have to wait is a coroutine for the handler. It awaits the reply, and until the records behind
    the reply are as durable as the topic's flush.messages requires. All methods raise KafkaError if there is no
    coordinator for an id.
    """

    def __init__(
        self,
        config: ServerConfig,
        topic: InternalTopic,
        partitions: PartitionTable,
        metadata: MetadataService,
        producer_ids: ProducerIds,
        clock: Clock,
        loop: Loop,
    ) -> None:
        shard_config = TransactionConfig(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            expiration_check_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        )
        self._partitions = partitions
        self._metadata = metadata
        self._producer_ids = producer_ids
        self._clock = clock
        self._uncommitted: set[tuple[int, int, TopicPartition]] = set()
        """Markers that are not committed yet: producer id, epoch, partition."""
        self._without_markers: set[TopicPartition] = set()
        """The partitions in which the last marker could not be written or committed here."""

        self._waiting = WaitingForEnd()
        self._patience_ms = config.add_partitions_to_txn_retry_backoff_max_ms
        self._remote_markers = RemoteMarkers(self._coordinates)
        # Markers have their own connections, because their responses wait for replicas.
        self.peers = peers_of(metadata, loop, "markers"), peers_of(metadata, loop, "transactions")
        """The connections to other brokers."""
        for_markers, for_coordinators = self.peers
        self._marker_sender = Sender(for_markers, self._remote_markers.next_request, self._markers_answered)
        self._remote_coordinators = RemoteCoordinators(for_coordinators, config, clock, self._coordinator_elsewhere)

        def make_shard(index: int) -> TransactionShard:
            return TransactionShard(
                shard_config,
                coordinator_epoch=partitions.find(topic.name, index).leader().leader_epoch,
                new_producer_id=producer_ids.take,
                transaction_version=lambda: metadata.transaction_version,
            )

        self.runtime = CoordinatorRuntime(topic, clock, "transactions", make_shard, self._do_other)

    async def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        while True:
            index, shard, now = self.runtime.find(request.transactional_id or "")
            future: Future[InitProducerIdResponse] = Future()
            self.runtime.perform(index, shard.init_producer_id(request, future, now=now))
            response = await self.runtime.durable(index, future)
            if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return response
            # There was no producer id, and nothing has changed.
            await self._producer_ids.ready()

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        transaction_version: int,
    ) -> ErrorCode:
        """Adds partitions, which must exist. Returns one error code for all of them."""
        index, shard, now = self.runtime.find(transactional_id)
        future: Future[ErrorCode] = Future()
        effects = shard.add_partitions(
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            future,
            transaction_version=transaction_version,
            now=now,
        )
        self.runtime.perform(index, effects)
        return await self.runtime.durable(index, future)

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns the results of `TransactionShard.verify_partitions`."""
        _, shard, _ = self.runtime.find(transactional_id)
        return shard.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)

    def enlist(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int, *, adds: bool
    ) -> Joined:
        """Adds the partition to the producer's transaction or, without `adds`, verifies that it is part of it.

        Returns None if its data may be appended at once; else a future that gets None when they may, or an error if
        they may not: always a future if another node is the coordinator. Raises KafkaError: TRANSACTION_ABORTABLE (it
        is not part of it), INVALID_TXN_STATE, PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NETWORK_EXCEPTION.
        """
        partition = (topic, index)
        if not adds and not self._metadata.config.transaction_partition_verification_enable:
            return None
        if not self.runtime.topic.exists:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.runtime.topic.name} does not exist yet")
        try:
            return self._enlist_here(transactional_id, producer_id, producer_epoch, partition, adds)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            node_id = self._coordinator_elsewhere(transactional_id)
            if node_id is None:
                raise
        producer = TxnProducer(transactional_id, producer_id, producer_epoch, adds)
        return self._remote_coordinators.send(node_id, producer, partition)

    def _enlist_here(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition, adds: bool
    ) -> Joined:
        if not adds:
            error = self.verify_partitions(transactional_id, producer_id, producer_epoch, [partition])[partition]
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
            return None
        join = partial(self._join, transactional_id, producer_id, producer_epoch, partition)
        try:
            return join()
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or not self._patience_ms:
                raise
        now_ms = self._clock.monotonic_ms()
        future = UntilEnded(join, timeout_ms=self._patience_ms, now_ms=now_ms)
        self._waiting.add(transactional_id, future, now_ms=now_ms)
        return future

    def _join(self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition) -> Joined:
        index, shard, now = self.runtime.find(transactional_id)
        future: Future[ErrorCode] = Future()
        effects = shard.add_partitions(
            transactional_id,
            producer_id,
            producer_epoch,
            [partition],
            future,
            transaction_version=EPOCH_BUMP_VERSION,
            now=now,
        )
        self.runtime.perform(index, effects)
        if future.value is not ErrorCode.NONE:
            raise KafkaError(future.value)
        return self.runtime.topic.when_committed(index)

    def _coordinator_elsewhere(self, transactional_id: str) -> int | None:
        """The other node that coordinates the id; None if there is none, or if it is this one."""
        topic = self.runtime.topic
        if not topic.exists:
            return None
        leader_id = topic.role(java_hash(transactional_id) % topic.partition_count).leader_id
        return None if leader_id in (NO_LEADER, self._metadata.node_id) else leader_id

    def _coordinates(self, index: int, coordinator_epoch: int) -> bool:
        """True if this node coordinates that partition of `__transaction_state` in that epoch."""
        shard = self.runtime.shard_at(index)
        return shard is not None and shard.coordinator_epoch == coordinator_epoch

    async def end(self, request: EndTxnRequest, *, transaction_version: int) -> EndTxnResponse:
        """Returns when the decision is made; from transaction version 2 on with the producer's next id and epoch."""
        index, shard, now = self.runtime.find(request.transactional_id)
        future: Future[EndTxnResponse] = Future()
        self.runtime.perform(index, shard.end(request, future, transaction_version=transaction_version, now=now))
        return await self.runtime.durable(index, future)

    def describe(self, transactional_id: str) -> DescribedTransaction:
        _, shard, _ = self.runtime.find(transactional_id)
        return shard.describe([transactional_id])[0]

    def list_transactions(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        wanted = TransactionFilter.of(request)
        shards, now = self.runtime.all_shards()
        return ListTransactionsResponse(
            unknown_state_filters=wanted.unknown_states,
            transaction_states=[found for shard in shards for found in shard.list_transactions(wanted, now=now)],
        )

    def _do_other(self, index: int, effect: Effect) -> Iterable[Effect]:
        if isinstance(effect, Ended):
            self._waiting.ended(effect.transactional_id, now_ms=self._clock.monotonic_ms())
            return []
        assert isinstance(effect, WriteMarkers)
        shard = self.runtime.shard_at(index)
        if shard is None:
            return []  # an append of the same step has failed, and so its log dir is offline
        decided = self.runtime.topic.when_committed(index)
        if decided is not None:
            if not decided.is_set:
                decided.when_set(lambda: self._decided(index, effect.transactional_id, decided.value))
            return []
        # The order is always the same, so that simulations are repeatable.
        written = [partition for partition in sorted(effect.partitions) if self._write_marker(index, effect, partition)]
        return shard.markers_written(
            effect.transactional_id, effect.producer_id, effect.producer_epoch, written, now=self.runtime.now()
        )

    def _decided(self, index: int, transactional_id: str, error: KafkaError | None) -> None:
        """Continues with the markers once the decision is durable. If that failed, there is no coordinator."""
        shard = self.runtime.shard_at(index)
        if shard is not None and error is None:
            self.runtime.perform(index, shard.go_on(transactional_id, now=self.runtime.now()))

    def _write_marker(self, index: int, marker: WriteMarkers, partition: TopicPartition) -> bool:
        """Returns True if the marker is written and as durable as the partition's topic requires, or not needed."""
        key = (marker.producer_id, marker.producer_epoch, partition)
        if key in self._uncommitted:
            return False
        try:
            found = self._partitions.find(*partition)
            result = found.write_marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                committed=marker.committed,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
                now_ms=self._clock.now_ms(),
            )
        except KafkaError as error:
            registered = self._metadata.image.partition(*partition)
            if registered is not None and registered.leader not in (NO_LEADER, self._metadata.node_id):
                self._without_markers.discard(partition)
                self._remote_markers.want(index, marker, partition, registered.leader)
                self._marker_sender.send_soon(registered.leader)
                return False
            if error.code in _NEEDLESS:
                self._without_markers.discard(partition)
                log.info("no marker in %s-%d: %s", *partition, error)
                self._remote_markers.forget(marker.transactional_id, partition)
                return True
            self._marker_failed(partition, error)
            return False
        if self._remote_markers:
            self._remote_markers.forget(marker.transactional_id, partition)
        future = found.when_committed(result.last_offset, ALL_IN_SYNC)
        if future is None:
            self._without_markers.discard(partition)
            return True
        self._uncommitted.add(key)
        future.when_set(lambda: self._committed(index, marker, partition, future.value))
        return False

    def _committed(self, index: int, marker: WriteMarkers, partition: TopicPartition, error: KafkaError | None) -> None:
        self._uncommitted.discard((marker.producer_id, marker.producer_epoch, partition))
        if error is None:
            self._without_markers.discard(partition)
            self._written(index, marker, [partition])
        else:
            self._marker_failed(partition, error)

    def _marker_failed(self, partition: TopicPartition, error: KafkaError) -> None:
        """Logs the error once until a marker is written there: each transaction retries, with growing pauses."""
        if partition not in self._without_markers:
            log.warning("markers cannot be written to %s-%d, which is tried again: %s", *partition, error)
            self._without_markers.add(partition)

    def _markers_answered(self, sent: MarkersRequest, response: WriteTxnMarkersResponse | None) -> None:
        for done in self._remote_markers.answered(sent, response):
            self._written(done.index, done.marker, done.partitions)

    def _written(self, index: int, marker: WriteMarkers, partitions: Collection[TopicPartition]) -> None:
        """Reports the partitions that have the marker, as durable as they require, to the shard."""
        shard = self.runtime.shard_at(index)
        if shard is None or shard.coordinator_epoch != marker.coordinator_epoch:
            return  # it was unloaded meanwhile, and the id's new coordinator writes its own markers
        effects = shard.markers_written(
            marker.transactional_id,
            marker.producer_id,
            marker.producer_epoch,
            partitions,
            now=self.runtime.now(),
        )
        self.runtime.perform(index, effects)
