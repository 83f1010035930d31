"""A blocking producer. It writes batches exactly once and in order, with or without transactions.

A batch that is sent again, because its leader moved or the response was lost, is written once: brokers recognize it by
producer id, epoch and sequence (KIP-98). The records of a transaction become visible when it commits, together with the
offsets that it commits for a group.

The cluster determines the transaction protocol. If the feature `transaction.version` is 2 (KIP-890), partitions and
groups join a transaction with the first write to them, and each end of a transaction assigns a new epoch. With older
versions, the producer first adds each of them at the coordinator.

Errors that may pass are retried until the cluster's timeout. After that, a failure in a transaction means that it must
be aborted. Without a transaction the batches may have been written or not, and the producer continues with another id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from kwire_protocol.compression import NONE
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire_protocol.records import Record, build_batch

from kwire.client.cluster import Cluster, CoordinatorKind, TopicPartition
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError, Refused, raise_worst, refused
from kwire.client.groups import CommittedOffset
from kwire.client.producer_state import Phase, ProducerState

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 60_000
DEFAULT_BATCH_BYTES: Final = 512 * 1024
_RECORD_BYTES: Final = 32  # the usual maximum size of a record without key, value and headers
_ALL_REPLICAS: Final = -1
_NO_TRANSACTIONS_TIMEOUT_MS: Final = (1 << 31) - 1

_TRANSACTION_VERSION: Final = "transaction.version"
_EPOCH_PER_TRANSACTION: Final = 2  # the level of that feature from which on each end gives a new epoch
_FIRST_INIT_WITH_EPOCH: Final = 3
_FIRST_PRODUCE_THAT_ADDS: Final = 12
_LAST_PRODUCE_WITH_TOPIC_NAMES: Final = 12
_LAST_ADD_OF_CLIENTS: Final = 3
_FIRST_OFFSETS_THAT_ADD: Final = 5
_LAST_OFFSETS_WITH_TOPIC_NAMES: Final = 5
_FIRST_END_WITH_EPOCH: Final = 5
T = TypeVar("T")

_FENCED: Final = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}


class ProducerFenced(Refused):
    """Another producer took the transactional id, or the transaction timed out. This producer can no longer be used."""


class TransactionAborted(Refused):
    """The transaction can no longer be committed: `abort` it and start over."""


class Producer:
    """Writes batches. With a transactional id, call `init` first.

    transactional_id: shared by all incarnations of a writer; the newest fences the others. None for a producer without
    transactions. transaction_timeout_ms: after this time the broker aborts the transaction. compression: a codec of
    `kwire_protocol.compression`.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        compression: int = NONE,
    ) -> None:
        self._cluster = cluster
        self._timeout_ms = transaction_timeout_ms
        self._compression = compression
        self._state = ProducerState(transactional_id)
        self._gives_epochs = False
        """True if the transaction is of version 2."""

    @property
    def producer_id(self) -> int:
        """The producer id; -1 before `init`."""
        return self._state.producer_id

    @property
    def producer_epoch(self) -> int:
        return self._state.producer_epoch

    @property
    def gives_epochs(self) -> bool:
        """True if the open transaction is of version 2. Another client that ends it must use that version."""
        return self._gives_epochs

    @property
    def phase(self) -> Phase:
        return self._state.phase

    # Its id

    def init(self) -> None:
        """Gets id and epoch. With a transactional id, aborts its open transaction and fences all earlier producers."""
        self._init(-1, -1)

    def _init(self, producer_id: int, producer_epoch: int) -> None:
        state = self._state
        if state.transactional_id is None:
            request = InitProducerIdRequest(None, _NO_TRANSACTIONS_TIMEOUT_MS)
        else:
            request = InitProducerIdRequest(state.transactional_id, self._timeout_ms, producer_id, producer_epoch)
        at_least = _FIRST_INIT_WITH_EPOCH if producer_id >= 0 else 0

        def call(connection: BrokerConnection) -> InitProducerIdResponse:
            response: InitProducerIdResponse = connection.call(request, at_least=at_least)
            if response.error_code:
                raise self._refused("cannot get a producer id", response.error_code)
            return response

        with self._fencing():
            if state.transactional_id is None:
                response = self._cluster.until_done(lambda: call(self._cluster.any_connection()))
            else:
                response = self._call_coordinator(call)
        state.initialized(response.producer_id, response.producer_epoch)

    # Writing

    def produce(self, batches: Mapping[TopicPartition, Sequence[Record]]) -> dict[TopicPartition, int]:
        """Writes one batch to each partition. Returns the offset of its first record once all in-sync replicas have it.

        The offset is -1 if the leader only reports that it already has the batch.

        Offsets in the records are ignored; timestamps are kept. Raises ProducerFenced, TransactionAborted, WrongPhase,
        UnknownTopic and other ClientErrors; some of the batches may then have been written.
        """
        state = self._state
        if state.transactional_id is None and state.phase is Phase.UNINITIALIZED:
            self.init()
        state.check_may_write()
        offsets: dict[TopicPartition, int] = {}
        with self._failing():
            pending = {at: self._batch(at, records) for at, records in batches.items() if records}
            self._add_partitions(pending.keys() - state.partitions)

            def forget_leaders(_: ClientError) -> None:
                for at in pending:
                    self._cluster.forget_topic(at.topic)

            self._cluster.until_done(lambda: self._send(pending, offsets), forget_leaders)
        return offsets

    def write(
        self, at: TopicPartition, records: Iterable[Record], *, batch_bytes: int = DEFAULT_BATCH_BYTES
    ) -> int | None:
        """Writes any number of records to a partition, in batches of about `batch_bytes` before compression.

        Returns the offset of the first record, None if there was none. Raises the errors of `produce`.
        """
        first: int | None = None
        for some in split_records(records, batch_bytes):
            offset = self.produce({at: some})[at]
            first = offset if first is None else first
        return first

    def _batch(self, at: TopicPartition, records: Sequence[Record]) -> bytes:
        state = self._state
        return build_batch(
            records,
            compression=self._compression,
            base_sequence=state.take_sequence(at, len(records)),
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            transactional=state.transactional_id is not None,
        )

    def _send(self, pending: dict[TopicPartition, bytes], offsets: dict[TopicPartition, int]) -> None:
        """Sends pending batches to their leaders. Batches that were written move to `offsets`."""
        by_leader: dict[int, dict[str, list[PartitionProduceData]]] = defaultdict(lambda: defaultdict(list))
        for at, batch in pending.items():
            by_leader[self._cluster.leader(at)][at.topic].append(PartitionProduceData(at.partition, batch))
        requests = {
            leader: ProduceRequest(
                self._state.transactional_id,
                _ALL_REPLICAS,
                int(self._cluster.timeout_s * 1000),
                [TopicProduceData(topic, partition_data=data) for topic, data in topics.items()],
            )
            for leader, topics in by_leader.items()
        }
        is_transactional = self._state.transactional_id is not None
        answers = self._cluster.call_each(
            requests,
            at_least=_FIRST_PRODUCE_THAT_ADDS if is_transactional and self._gives_epochs else 0,
            at_most=_FIRST_PRODUCE_THAT_ADDS - 1
            if is_transactional and not self._gives_epochs
            else _LAST_PRODUCE_WITH_TOPIC_NAMES,
        )
        problems: list[ClientError] = []
        for answer in answers.values():
            if isinstance(answer, ClientError):
                problems.append(answer)
                continue
            for topic in answer.responses:
                for it in topic.partition_responses:
                    at = TopicPartition(topic.name, it.index)
                    # A duplicate batch was written by the request whose response was lost.
                    if it.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                        offsets[at] = it.base_offset
                        pending.pop(at, None)
                    else:
                        problems.append(self._refused(f"cannot write to {at}", it.error_code, it.error_message))
        raise_worst(problems)
        if pending:
            at = next(iter(pending))
            raise Refused(f"{self._state.name} got no result for {at}", ErrorCode.UNKNOWN_SERVER_ERROR)

    # Transactions

    def begin(self) -> None:
        """Begins a transaction. Connects to the coordinator, but sends no request."""
        self._state.begin()
        # The coordinator's features are those of the cluster. The transaction uses them until its end.
        with self._failing():
            self._gives_epochs = self._call_coordinator(
                lambda connection: connection.features.get(_TRANSACTION_VERSION, 0) >= _EPOCH_PER_TRANSACTION
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits when the block ends, aborts when it raises."""
        self.begin()
        try:
            yield
        except BaseException:
            with suppress(ClientError):
                self.abort()
            raise
        self.commit()

    def add_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        *,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        """Adds a group's offsets to the transaction: they are committed with it.

        generation_id, member_id: of the member that consumed. Without them the group must have no members.
        """
        state = self._state
        state.check(Phase.IN_TRANSACTION, "add offsets")
        if not offsets:
            return
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
        for at, committed in offsets.items():
            it = committed if isinstance(committed, CommittedOffset) else CommittedOffset(committed)
            by_topic[at.topic].append(
                TxnOffsetCommitRequestPartition(at.partition, it.offset, it.leader_epoch, it.metadata)
            )
        with self._failing():
            self._add_group(group_id)
            request = TxnOffsetCommitRequest(
                state.transactional_id or "",
                group_id,
                state.producer_id,
                state.producer_epoch,
                generation_id,
                member_id,
                group_instance_id,
                [TxnOffsetCommitRequestTopic(name, partitions=some) for name, some in by_topic.items()],
            )

            def call(connection: BrokerConnection) -> None:
                response = connection.call(
                    request,
                    at_least=_FIRST_OFFSETS_THAT_ADD if self._gives_epochs else 0,
                    at_most=_LAST_OFFSETS_WITH_TOPIC_NAMES if self._gives_epochs else _FIRST_OFFSETS_THAT_ADD - 1,
                )
                for topic in response.topics:
                    for it in topic.partitions:
                        if it.error_code:
                            what = f"cannot add the offset of {topic.name}-{it.partition_index}"
                            raise self._refused(what, it.error_code)

            state.is_known = True
            self._cluster.call_coordinator(CoordinatorKind.GROUP, group_id, call)

    def commit(self) -> None:
        """Commits the transaction. When this returns, the commit is decided.

        After a ConnectionFailed the result is unknown; call it again until it succeeds.
        """
        self._state.committing()
        try:
            self._end(committed=True)
        except TransactionAborted:
            self._state.phase = Phase.MUST_ABORT
            raise

    def abort(self) -> None:
        """Aborts the transaction, regardless of earlier failures."""
        state = self._state
        was_sound = state.phase is Phase.IN_TRANSACTION
        state.aborting()
        if was_sound or self._gives_epochs:
            self._end(committed=False)
        else:
            # The coordinator may have no transaction, and no batch can follow in this epoch: this ends both (KIP-360).
            self._init(state.producer_id, state.producer_epoch)

    def _end(self, *, committed: bool) -> None:
        state = self._state
        if not state.is_known:
            state.ended()
            return
        request = EndTxnRequest(
            state.transactional_id or "", state.producer_id, state.producer_epoch, committed=committed
        )

        def call(connection: BrokerConnection) -> EndTxnResponse:
            response: EndTxnResponse = connection.call(
                request,
                at_least=_FIRST_END_WITH_EPOCH if self._gives_epochs else 0,
                at_most=None if self._gives_epochs else _FIRST_END_WITH_EPOCH - 1,
            )
            if response.error_code:
                raise self._refused(f"cannot {'commit' if committed else 'abort'}", response.error_code)
            return response

        with self._fencing():
            response = self._call_coordinator(call)
        state.ended(response.producer_id, response.producer_epoch)

    def _add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Adds the partitions at the coordinator, if the protocol requires it."""
        state = self._state
        if state.transactional_id is None or self._gives_epochs or not partitions:
            return
        by_topic: dict[str, list[int]] = defaultdict(list)
        for at in sorted(partitions):
            by_topic[at.topic].append(at.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=state.transactional_id,
            v3_and_below_producer_id=state.producer_id,
            v3_and_below_producer_epoch=state.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, indexes) for name, indexes in by_topic.items()],
        )

        def call(connection: BrokerConnection) -> None:
            response = connection.call(request, at_most=_LAST_ADD_OF_CLIENTS)
            # If one partition of a request is refused, the others are OPERATION_NOT_ATTEMPTED, which is not the reason.
            results = [
                (f"{topic.name}-{it.partition_index}", it.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for it in topic.results_by_partition
                if it.partition_error_code
            ]
            results.sort(key=lambda it: it[1] == ErrorCode.OPERATION_NOT_ATTEMPTED)
            for name, code in results:
                raise self._refused(f"cannot add {name} to its transaction", code)

        self._call_coordinator(call)
        state.partitions |= {TopicPartition(name, index) for name, indexes in by_topic.items() for index in indexes}

    def _add_group(self, group_id: str) -> None:
        """Adds the group at the coordinator, if the protocol requires it."""
        state = self._state
        if self._gives_epochs or group_id in state.groups:
            return
        request = AddOffsetsToTxnRequest(
            state.transactional_id or "", state.producer_id, state.producer_epoch, group_id
        )

        def call(connection: BrokerConnection) -> None:
            code = connection.call(request).error_code
            if code:
                raise self._refused(f"cannot add group {quoted(group_id)} to its transaction", code)

        state.is_known = True
        self._call_coordinator(call)
        state.groups.add(group_id)

    def _call_coordinator(self, call: Callable[[BrokerConnection], T]) -> T:
        assert self._state.transactional_id is not None
        return self._cluster.call_coordinator(CoordinatorKind.TRANSACTION, self._state.transactional_id, call)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Records a failure of the block: the transaction must be aborted, or the sequences are unknown."""
        try:
            with self._fencing():
                yield
        except BaseException:
            self._state.failed()
            raise

    @contextmanager
    def _fencing(self) -> Iterator[None]:
        """Notes it if the block raises because another producer has the transactional id."""
        try:
            yield
        except ProducerFenced:
            self._state.fenced()
            raise

    def _refused(self, what: str, code: int, message: str | None = None) -> Refused:
        it = refused(f"{self._state.name} {what}", code, message)
        if code in _FENCED:
            return ProducerFenced(it.message, code)
        if code == ErrorCode.TRANSACTION_ABORTABLE:
            return TransactionAborted(it.message, code)
        return it


def split_records(records: Iterable[Record], batch_bytes: int = DEFAULT_BATCH_BYTES) -> Iterator[list[Record]]:
    """Splits records into lists of about this many bytes, uncompressed. A larger record gets its own list."""
    some: list[Record] = []
    size = 0
    for it in records:
        needed = _RECORD_BYTES + len(it.key or b"") + len(it.value or b"")
        if it.headers:
            needed += sum(8 + len(name) + len(value or b"") for name, value in it.headers)
        if some and size + needed > batch_bytes:
            yield some
            some, size = [], 0
        some.append(it)
        size += needed
    if some:
        yield some
