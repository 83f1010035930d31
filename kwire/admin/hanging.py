"""Finds hanging transactions: they are open in a partition, but no coordinator will ever end them.

A transaction hangs when its first records came to a partition behind the marker that should have ended it: a write
that was delayed, or of a client older than KIP-890. Its coordinator has forgotten it, so the last stable offset of the
partition does not advance, which stops every reader of committed data, and compaction.

The rule is that of Kafka's TransactionsCommand (KIP-664): it is open for longer than any transaction may be
(`transaction.max.timeout.ms` of the brokers), and no coordinator counts the partition among those that it will still
write a marker to. Every transaction that was found is checked again at the end: it may have ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection

from kwire.admin.transactions import Described, OpenTransaction, OpenTransactions, TransactionAdmin


def find_hanging(
    admin: TransactionAdmin,
    *,
    now_ms: int,
    max_timeout_ms: int,
    topic: str | None = None,
    partition: int | None = None,
) -> OpenTransactions:
    """Returns the hanging transactions in all partitions, those of a topic, or one. Raises ClientError."""
    transactions = admin.open_transactions(topic, partition)
    old = [it for it in transactions.found if now_ms - it.last_timestamp_ms > max_timeout_ms]
    expected = still_expected(admin, old)
    hanging = [it for it in old if it not in expected]
    if hanging:
        again = admin.open_transactions(topic, partition)
        still_open = {_identity(it) for it in again.found}
        hanging = [it for it in hanging if _identity(it) in still_open]
    return OpenTransactions(hanging, transactions.problems)


def still_expected(
    admin: TransactionAdmin, transactions: Collection[OpenTransaction]
) -> dict[OpenTransaction, Described]:
    """Returns the transactions that a coordinator will end automatically, each with the coordinator's description."""
    if not transactions:
        return {}
    producer_ids = {it.producer_id for it in transactions}
    ids = {it.producer_id: it.transactional_id for it in admin.list_transactions(producer_ids=sorted(producer_ids))}
    described = admin.describe_transactions(ids[producer_id] for producer_id in producer_ids & ids.keys())
    found = {}
    for it in transactions:
        known = described.get(ids.get(it.producer_id, ""))
        # While a transaction ends, its coordinator returns the partitions that have no marker yet.
        if known is not None and (it.topic, it.partition) in known.partitions:
            found[it] = known
    return found


def _identity(it: OpenTransaction) -> tuple[str, int, int, int, int]:
    return it.topic, it.partition, it.producer_id, it.producer_epoch, it.start_offset
