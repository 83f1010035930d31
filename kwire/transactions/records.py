"""The records of `__transaction_state`, byte for byte Kafka's: the part of a transactional id that survives a restart.

A key is an int16 kind, 0, then the transactional id. A value is an int16 version, then its fields. A record without a
value is a tombstone, for an id that has expired. Value versions:

    0  producer id and epoch, time-out, state, partitions, the times of the last change and of the start
    1  also, tagged: previous and next producer id, next epoch, client's transaction version (transaction.version 1)

An Empty id has a null list of partitions, not an empty one. Other kinds of keys are skipped.
"""

from __future__ import annotations

from collections import defaultdict

import attrs
from kwire_protocol.internal.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue
from kwire_protocol.wire import ProtocolError, Reader, Writer

from kwire.coordinators.effects import KeyedRecord
from kwire.transactions.transaction import Transaction, TransactionState

TRANSACTION_KIND = 0

STATES = tuple(TransactionState)
STORED_STATES = STATES[: STATES.index(TransactionState.DEAD)]

FIRST_TRANSACTION_VERSION_WITH_TAGS = 1


@attrs.frozen
class TransactionChange:
    """The new state of a transactional id; None if it was removed."""

    transactional_id: str
    transaction: Transaction | None

    def record(self, transaction_version: int) -> KeyedRecord:
        """`transaction_version` is the cluster's level of transaction.version."""
        key = Writer()
        key.int16(TRANSACTION_KIND)
        TransactionLogKey(self.transactional_id).write(key, 0)
        if self.transaction is None:
            return key.getvalue(), None
        value = Writer()
        version = int(transaction_version >= FIRST_TRANSACTION_VERSION_WITH_TAGS)
        value.int16(version)
        _value(self.transaction, version).write(value, version)
        return key.getvalue(), value.getvalue()


def _value(transaction: Transaction, version: int) -> TransactionLogValue:
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=STATES.index(transaction.state),
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else _topics(transaction),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if version:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.next_producer_epoch = transaction.next_producer_epoch
        value.client_transaction_version = transaction.client_version
    return value


def _topics(transaction: Transaction) -> list[PartitionsSchema]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(transaction.partitions):
        by_topic[topic].append(index)
    return [PartitionsSchema(topic, indexes) for topic, indexes in by_topic.items()]


def read_record(key: bytes, value: bytes | None) -> TransactionChange | None:
    """Decodes a record; None for keys of other kinds.

    Raises ProtocolError if the bytes are not a record, UnsupportedVersion if the value's version is newer than ours.
    """
    key_reader = Reader(key)
    if key_reader.int16() != TRANSACTION_KIND:
        return None
    transactional_id = TransactionLogKey.read(key_reader, 0).transactional_id
    if value is None:
        return TransactionChange(transactional_id, None)
    value_reader = Reader(value)
    stored = TransactionLogValue.read(value_reader, value_reader.int16())
    if not 0 <= stored.transaction_status < len(STORED_STATES):
        raise ProtocolError(f"there is no transaction state {stored.transaction_status} in a log")
    transaction = Transaction(
        transactional_id=transactional_id,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=STORED_STATES[stored.transaction_status],
        last_update_ms=stored.transaction_last_update_timestamp_ms,
        partitions=frozenset(
            (topic.topic, index) for topic in stored.transaction_partitions or () for index in topic.partition_ids
        ),
        start_ms=stored.transaction_start_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        next_producer_epoch=stored.next_producer_epoch,
        client_version=stored.client_transaction_version,
    )
    return TransactionChange(transactional_id, transaction)
