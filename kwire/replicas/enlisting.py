"""Contacts a transaction's coordinator before its first batch in a partition is appended (KIP-890).

A partition without an open transaction of the producer contacts the coordinator of the transactional id. From Produce
v12 on (transaction version 2) that adds it to the transaction; before, it verifies that it was added. So every
transactional write belongs to a transaction that the coordinator has and will end. Like Kafka's
`ReplicaManager.handleProduceAppend`.

The coordinator may be on another node, and a marker may arrive before its answer. Then the answer is not valid. With
transaction version 2 that may be the marker of the producer's last transaction, so the request to the coordinator is
repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import BatchHeader
from kwire_storage.producers.states import Verification

from kwire.replicas.partition import Partition
from kwire.replicas.roles import NotLeaderError
from kwire.runtime.futures import Future

if TYPE_CHECKING:
    from kwire.runtime.clock import Clock

FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_THAT_ADDS = 12

_TO_BE_SENT_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Unverified(KafkaError):
    """A transactional batch that was refused before it reached the log."""


class Enlist(Protocol):
    """The request to a transaction's coordinator; see `TransactionService.enlist`."""

    def __call__(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int, *, adds: bool
    ) -> Future[KafkaError | None] | None: ...


@attrs.define(eq=False)
class Enlistment:
    """A batch that waits for its transaction's coordinator. It is a copy, because the connection reuses its buffer."""

    partition: Partition
    batch: memoryview
    header: BatchHeader
    _request: Callable[[], Future[KafkaError | None] | None]
    _verification: Verification
    _decided: Future[KafkaError | None]
    _version: int

    async def verified(self, clock: Clock) -> None:
        """Returns when the batch may be appended; the caller must do that at once. Raises KafkaError if it may not."""
        partition, header = self.partition, self.header
        error = await self._decided
        if error is None and self._is_outdated():
            error = await self._request_again(clock)
        if error is not None:
            raise _refusal(partition, header, error, self._version)
        # Another request may have begun the transaction in the meantime.
        if not partition.holds_transaction(header):
            partition.check_verified(header, self._verification)

    def _is_outdated(self) -> bool:
        """True if the batch may begin a transaction after the one whose marker has arrived."""
        partition = self.partition
        return (
            self._version >= FIRST_VERSION_THAT_ADDS
            and not partition.holds_transaction(self.header)
            and not partition.verifies(self._verification)
        )

    async def _request_again(self, clock: Clock) -> KafkaError | None:
        self._verification = _begin(self.partition, self.header, adds=True, now_ms=clock.now_ms())
        try:
            decided = self._request()
        except KafkaError as error:
            return error
        return None if decided is None else await decided


def enlist(
    request: Enlist,
    transactional_id: str | None,
    partition: Partition,
    batch: memoryview,
    header: BatchHeader,
    *,
    version: int,
    now_ms: int,
) -> Enlistment | None:
    """Makes sure that the coordinator has the batch's transaction. Returns None if the batch may be appended at once.

    Raises KafkaError with an error code that this version of Produce has.
    """
    if transactional_id is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if partition.holds_transaction(header):
        return None
    adds = version >= FIRST_VERSION_THAT_ADDS
    verification = _begin(partition, header, adds=adds, now_ms=now_ms)
    producer = (transactional_id, header.producer_id, header.producer_epoch)
    try:
        decided = request(*producer, partition.topic, partition.index, adds=adds)
    except KafkaError as error:
        raise _refusal(partition, header, error, version) from error
    if decided is None:
        partition.check_verified(header, verification)
        return None
    repeat = partial(request, *producer, partition.topic, partition.index, adds=adds)
    return Enlistment(partition, memoryview(bytearray(batch)), header, repeat, verification, decided, version)


def _begin(partition: Partition, header: BatchHeader, *, adds: bool, now_ms: int) -> Verification:
    try:
        return partition.begin_verification(header, adds=adds, now_ms=now_ms)
    except NotLeaderError:
        raise
    except KafkaError as error:
        raise Unverified(error.code, error.message) from error


def _refusal(partition: Partition, header: BatchHeader, error: KafkaError, version: int) -> Unverified:
    """The coordinator's error, as a producer gets it (Kafka's `AddPartitionsToTxnManager` and `ReplicaManager`)."""
    code, message = error.code, error.message
    if code in _TO_BE_SENT_AGAIN or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_THAT_ADDS):
        # Older clients do not retry on these errors. They retry on this one, without refreshing their metadata.
        return Unverified(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be verified now: {code.name}")
    if code != ErrorCode.CONCURRENT_TRANSACTIONS:
        partition.drop_verification(header)
    if code == ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    return Unverified(code, message)
