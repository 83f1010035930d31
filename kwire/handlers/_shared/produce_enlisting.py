"""Before the first batch of a transaction in a partition is appended, its coordinator is asked (KIP-890).

A partition that holds no transaction of the producer asks the coordinator of the transactional id: to add it to the
transaction (from Produce v12 on, transaction version 2), or whether it was added (before). So no write lands outside a
transaction that its coordinator knows, and will end. As Kafka's `ReplicaManager.handleProduceAppend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import BatchHeader
from kwire_storage.log.log import AppendResult
from kwire_storage.producers.states import Verification

from kwire.handlers._shared.produce_refusals import Unverified
from kwire.replicas.partition import Partition
from kwire.waits import Slot

if TYPE_CHECKING:
    from kwire.broker import Broker

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


@attrs.define(eq=False)
class Enlistment:
    """A batch that waits for its transaction's coordinator. It is a copy: the connection receives the next request."""

    partition: Partition
    batch: memoryview
    header: BatchHeader
    verification: Verification
    decided: Slot[KafkaError | None]
    acks: int
    version: int

    async def append(self, broker: Broker) -> AppendResult:
        """Raises KafkaError."""
        error = await self.decided
        if error is not None:
            raise _refusal(self.partition, self.header, error, self.version)
        # Another request may have begun the transaction meanwhile.
        if not self.partition.holds_transaction(self.header):
            self.partition.check_verified(self.header, self.verification)
        return self.partition.append(self.batch, self.header, acks=self.acks, now_ms=broker.clock.now_ms())


def enlist(
    broker: Broker,
    transactional_id: str | None,
    partition: Partition,
    batch: memoryview,
    header: BatchHeader,
    *,
    acks: int,
    version: int,
    now_ms: int,
) -> Enlistment | None:
    """Sees to it that the coordinator knows the transaction of a batch. None where the batch may be appended at once.

    Raises KafkaError, in the words of that version of Produce.
    """
    if transactional_id is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if partition.holds_transaction(header):
        return None
    adds = version >= FIRST_VERSION_THAT_ADDS
    try:
        verification = partition.begin_verification(header, adds=adds, now_ms=now_ms)
    except KafkaError as error:
        raise Unverified(error.code, error.message) from error
    try:
        decided = broker.transactions.enlist(
            transactional_id, header.producer_id, header.producer_epoch, partition.topic, partition.index, adds=adds
        )
    except KafkaError as error:
        raise _refusal(partition, header, error, version) from error
    if decided is None:
        partition.check_verified(header, verification)
        return None
    return Enlistment(partition, memoryview(bytearray(batch)), header, verification, decided, acks, version)


def _refusal(partition: Partition, header: BatchHeader, error: KafkaError, version: int) -> Unverified:
    """What the coordinator's error is to a producer (Kafka's `AddPartitionsToTxnManager` and `ReplicaManager`)."""
    code, message = error.code, error.message
    if code in _TO_BE_SENT_AGAIN or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_THAT_ADDS):
        # Older clients would not send it again for these; this one they do, without a look at the metadata.
        return Unverified(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be verified now: {code.name}")
    if code != ErrorCode.CONCURRENT_TRANSACTIONS:
        partition.drop_verification(header)
    if code == ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    return Unverified(code, message)
