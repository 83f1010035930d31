"""The transaction machine's effects besides `kwire.coordinators.effects`: markers, and ended transactions."""

from __future__ import annotations

import attrs

from kwire.coordinators.effects import Effect
from kwire.transactions.transaction import TopicPartition, Transaction, TransactionState


@attrs.frozen(eq=False)
class WriteMarkers(Effect):
    """Append the transaction's end marker to each of these partitions.

    The driver reports to `TransactionShard.markers_written` which partitions have it, or do not need it because their
    topic was deleted. It tries each only once: the machine requests markers for unreported partitions again. A delayed
    marker could end the producer's next transaction, which has the same epoch if the transaction version is
    below 2.
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
    """All markers of the id's transaction are written, and the next transaction may begin."""

    transactional_id: str
