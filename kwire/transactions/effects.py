"""What the transaction machine tells its driver besides `kwire.coordinators.effects`: of markers, and of ends."""

from __future__ import annotations

import attrs

from kwire.coordinators.effects import Effect
from kwire.transactions.transaction import TopicPartition, Transaction, TransactionState


@attrs.frozen(eq=False)
class WriteMarkers(Effect):
    """Append the transaction's end marker to each of these partitions.

    The driver tells `TransactionShard.markers_written` in which of them it is, or need not be, because the topic is no
    more. It does so at once and keeps nothing for later: the machine asks again for those that it did not hear of. A
    marker that was held back could end the producer's next transaction, which has the same epoch if the transaction
    version is below 2.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int

    @classmethod
    def of(cls, transaction: Transaction, coordinator_epoch: int) -> WriteMarkers:
        return cls(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            coordinator_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            transaction.partitions,
            transaction.client_version,
        )


@attrs.frozen(eq=False)
class Ended(Effect):
    """All markers of the id's transaction are in, and the next one may begin."""

    transactional_id: str
