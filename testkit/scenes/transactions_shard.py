"""A driver for the transaction machine without a loop, a log file or a clock, and with partitions that are lists.

Time is a number that a test moves. `append_error` makes appends fail, `unreachable` keeps markers out of partitions.
Every reply is checked to be the only one to its token, and to be one that the wire can carry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from kwire_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire_protocol.messages.list_transactions import ListTransactionsRequest
from kwire_protocol.wire import Writer

from kwire.coordinators.effects import Append, Effect, KeyedRecord, Now, Reply
from kwire.transactions.config import TransactionConfig
from kwire.transactions.effects import WriteMarkers
from kwire.transactions.listing import TransactionFilter
from kwire.transactions.records import TransactionChange, read_record
from kwire.transactions.shard import TransactionShard
from kwire.transactions.transaction import TopicPartition, Transaction

ID = "payments"
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
COORDINATOR_EPOCH = 7
FIRST_PRODUCER_ID = 1_000


@attrs.define
class Batch:
    """Some records of a transaction, or its end."""

    producer_id: int
    epoch: int
    committed: bool | None = None
    """True or False for the marker of a commit or an abort."""
    transaction: object = None
    """The transaction of the records, for the test only."""


@attrs.define
class FakePartition:
    """The appended batches, and the producers that have a transaction open in it (producer id -> epoch)."""

    batches: list[Batch] = attrs.field(factory=list)
    open: dict[int, int] = attrs.field(factory=dict)

    @property
    def last_stable_offset(self) -> int:
        """The number of batches before the first one whose transaction is open."""
        for offset, batch in enumerate(self.batches):
            if batch.committed is None and self.outcome(offset) is None:
                return offset
        return len(self.batches)

    def produce(self, producer_id: int, epoch: int, transaction: object = None) -> None:
        self.open[producer_id] = epoch
        self.batches.append(Batch(producer_id, epoch, transaction=transaction))

    def mark(self, producer_id: int, epoch: int, committed: bool) -> None:
        self.open.pop(producer_id, None)
        self.batches.append(Batch(producer_id, epoch, committed))

    def outcome(self, offset: int) -> bool | None:
        """True if the batch's transaction was committed, False if it was aborted; None while it is open.

        A producer's next marker decides.
        """
        producer_id = self.batches[offset].producer_id
        for later in self.batches[offset + 1 :]:
            if later.producer_id == producer_id and later.committed is not None:
                return later.committed
        return None


@attrs.frozen
class Answer:
    """The answer to InitProducerId or EndTxn."""

    error: ErrorCode
    producer_id: int
    epoch: int


class ShardDriver:
    def __init__(self, config: TransactionConfig | None = None, *, version: int = 2) -> None:
        self.config = config or TransactionConfig()
        self.version = version
        self.next_producer_id = FIRST_PRODUCER_ID
        self.producer_id_error = ErrorCode.NONE
        self.now_ms = 0
        """The time by the monotonic clock."""
        self.wall_ahead_ms = 0
        """The milliseconds by which the wall clock is ahead: a test may set that clock."""
        self.log: list[KeyedRecord] = []
        self.append_error = ErrorCode.NONE
        self.failing_appends = 0
        """The number of next appends that fail. With an `append_error` all do."""
        self.partitions: defaultdict[TopicPartition, FakePartition] = defaultdict(FakePartition)
        self.unreachable: set[TopicPartition] = set()
        self.sent_markers: list[WriteMarkers] = []
        self.done: list[str] = []
        """The effects in the order in which they were done: "append", "reply", "markers"."""
        self.replies: dict[object, Any] = {}
        self.tokens: set[object] = set()
        self.shard = self._shard()
        self.run(self.shard.loaded(now=self.now))

    def _shard(self) -> TransactionShard:
        return TransactionShard(
            self.config,
            coordinator_epoch=COORDINATOR_EPOCH,
            new_producer_id=self.new_producer_id,
            transaction_version=lambda: self.version,
        )

    def new_producer_id(self) -> int:
        if self.producer_id_error is not ErrorCode.NONE:
            raise KafkaError(self.producer_id_error)
        self.next_producer_id += 1
        return self.next_producer_id - 1

    @property
    def now(self) -> Now:
        return Now(self.now_ms + self.wall_ahead_ms, self.now_ms)

    # The loop of a driver

    def run(self, effects: Iterable[Effect]) -> None:
        todo = list(reversed(list(effects)))
        while todo:
            match todo.pop():
                case Append() as append:
                    error = self.append_error
                    if self.failing_appends:
                        self.failing_appends -= 1
                        error = ErrorCode.KAFKA_STORAGE_ERROR
                    if error is ErrorCode.NONE:
                        self.log += append.records
                    self.done.append("append")
                    todo += reversed(append.done(error, now=self.now))
                case Reply(token, response):
                    assert token in self.tokens, "a reply to nobody"
                    assert token not in self.replies, "a second reply to the same request"
                    if isinstance(response, (InitProducerIdResponse, EndTxnResponse)):
                        response.write(Writer(), response.versions[-1])
                    self.replies[token] = response
                    self.done.append("reply")
                case WriteMarkers() as markers:
                    self.done.append("markers")
                    todo += reversed(self.write(markers))

    def write(self, markers: WriteMarkers) -> list[Effect]:
        assert markers.partitions, "markers for nobody"
        self.sent_markers.append(markers)
        reached = sorted(markers.partitions - self.unreachable)
        for partition in reached:
            self.partitions[partition].mark(markers.producer_id, markers.producer_epoch, markers.committed)
        return self.written(reached, markers=markers)

    def written(self, partitions: Collection[TopicPartition], *, markers: WriteMarkers) -> list[Effect]:
        return self.shard.markers_written(
            markers.transactional_id,
            markers.producer_id,
            markers.producer_epoch,
            partitions,
            now=self.now,
        )

    def advance_to(self, now_ms: int) -> None:
        """Moves the time, stopping at every deadline on the way as a real driver does."""
        assert now_ms >= self.now_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run(self.shard.expire(now=self.now))
        self.now_ms = now_ms

    def advance(self, by_ms: int) -> None:
        self.advance_to(self.now_ms + by_ms)

    def restart(self) -> None:
        """A new shard from the log, as when the process died."""
        self.shard = self.replayed()
        self.run(self.shard.loaded(now=self.now))

    def replayed(self) -> TransactionShard:
        shard = self._shard()
        for key, value in self.log:
            shard.apply(key, value)
        return shard

    def token(self) -> object:
        token = object()
        self.tokens.add(token)
        return token

    # Requests

    def init(
        self,
        transactional_id: str = ID,
        *,
        expected: tuple[int, int] = (-1, -1),
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> Answer:
        token = self.token()
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
            enable2_pc=two_phase,
            keep_prepared_txn=keep_prepared,
        )
        self.run(self.shard.init_producer_id(request, token, now=self.now))
        response = self.replies[token]
        return Answer(ErrorCode(response.error_code), response.producer_id, response.producer_epoch)

    def producer(self, transactional_id: str = ID, *, epoch: int = 0, **init: Any) -> tuple[int, int]:
        """A new producer's id and epoch; with `epoch`, as if it had been raised so far."""
        answer = self.init(transactional_id, **init)
        assert answer.error is ErrorCode.NONE
        if epoch:
            self.rewrite(transactional_id, producer_epoch=epoch)
        return answer.producer_id, epoch or answer.epoch

    def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = ID,
        version: int | None = None,
    ) -> ErrorCode:
        token = self.token()
        self.run(
            self.shard.add_partitions(
                transactional_id,
                *producer,
                partitions,
                token,
                transaction_version=self.version if version is None else version,
                now=self.now,
            )
        )
        error = self.replies[token]
        assert isinstance(error, ErrorCode)
        return error

    def begin(self, *partitions: TopicPartition, epoch: int = 0, **init: Any) -> tuple[int, int]:
        """A new producer with these partitions in its transaction."""
        producer = self.producer(epoch=epoch, **init)
        assert self.add(producer, *partitions) is ErrorCode.NONE
        return producer

    def verify(
        self, producer: tuple[int, int], *partitions: TopicPartition, transactional_id: str = ID
    ) -> list[ErrorCode]:
        return list(self.shard.verify_partitions(transactional_id, *producer, partitions).values())

    def end(
        self, producer: tuple[int, int], committed: bool, *, transactional_id: str = ID, version: int | None = None
    ) -> Answer:
        token = self.token()
        request = EndTxnRequest(transactional_id, *producer, committed)
        version = self.version if version is None else version
        self.run(self.shard.end(request, token, transaction_version=version, now=self.now))
        response = self.replies[token]
        return Answer(ErrorCode(response.error_code), response.producer_id, response.producer_epoch)

    def commit(self, producer: tuple[int, int], **end: Any) -> Answer:
        return self.end(producer, True, **end)

    def abort(self, producer: tuple[int, int], **end: Any) -> Answer:
        return self.end(producer, False, **end)

    # What can be seen, and what was there before

    def stored(self, transactional_id: str = ID, *, back: int = 0) -> Transaction:
        """Returns the state of the id in the last record, or in an earlier one."""
        found = [change.transaction for change in map(read_record, *zip(*self.log, strict=True)) if change is not None]
        mine = [each for each in found if each is not None and each.transactional_id == transactional_id]
        return mine[-1 - back]

    def rewrite(self, transactional_id: str = ID, **fields: Any) -> None:
        """Replaces the state of the id, as if its last record had it, and was replayed."""
        changed = attrs.evolve(self.stored(transactional_id), **fields)
        self.log.append(TransactionChange(transactional_id, changed).record(self.version))
        self.restart()

    def described(self, transactional_id: str = ID) -> DescribedTransaction:
        return self.shard.describe([transactional_id])[0]

    def state(self, transactional_id: str = ID) -> str:
        described = self.described(transactional_id)
        return described.transaction_state or ErrorCode(described.error_code).name

    def producer_of(self, transactional_id: str = ID) -> tuple[int, int]:
        described = self.described(transactional_id)
        return described.producer_id, described.producer_epoch

    def listed(self, **request: Any) -> set[str]:
        wanted = TransactionFilter.of(ListTransactionsRequest(**request))
        return {each.transactional_id for each in self.shard.list_transactions(wanted, now=self.now)}

    def markers(self, partition: TopicPartition) -> list[tuple[int, int, bool]]:
        """Producer id, epoch and outcome of each marker in the partition."""
        return [
            (batch.producer_id, batch.epoch, batch.committed)
            for batch in self.partitions[partition].batches
            if batch.committed is not None
        ]
