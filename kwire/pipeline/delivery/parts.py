"""A task's part of a batch: a transaction that is written and left open, for the driver to end.

A transaction is identified by its transactional id, producer id and epoch. Any client with these three may end
it, any number of times: brokers answer a repeated end as they did the first one (KIP-890), as long as no other
transaction has begun under that id. So an end has three outcomes: the transaction is ended, by this request or before;
it is lost, because it timed out or another producer has the id; or the outcome is unknown at the moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from enum import Enum, auto
from types import TracebackType
from typing import Final, Self

import attrs
from kwire_protocol.compression import NONE
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

from kwire.client.cluster import Cluster, CoordinatorKind
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError, refused
from kwire.client.producing import Producer
from kwire.pipeline.delivery.writing import RecordWriter

_FIRST_END_WITH_EPOCH: Final = 5
_LOST: Final = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
}
_FORGOTTEN: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING
"""The error for an id that was unused for days. Its transaction may have been committed."""


@attrs.frozen
class OpenTransaction:
    """The name of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    gives_epochs: bool
    """True if it uses transaction version 2, and has to be ended in that version."""


@attrs.frozen
class Part:
    """The records of one task. Two parts that have the same records in the same order have the same checksum."""

    task: int
    records: int
    checksum: int
    transaction: OpenTransaction | None
    """None for a task that had nothing to write."""
    begun_ms: int
    """The time when it began, by the clock of the machine that wrote it."""

    def is_alike(self, other: Part) -> bool:
        return (self.task, self.records, self.checksum) == (other.task, other.records, other.checksum)


class Outcome(Enum):
    DONE = auto()
    LOST = auto()


def end(cluster: Cluster, transaction: OpenTransaction, *, committed: bool) -> Outcome:
    """Ends a transaction, or finds it ended. Raises ClientError if the outcome is unknown."""
    it = transaction
    request = EndTxnRequest(it.transactional_id, it.producer_id, it.producer_epoch, committed=committed)

    def call(connection: BrokerConnection) -> Outcome:
        response: EndTxnResponse = connection.call(
            request,
            at_least=_FIRST_END_WITH_EPOCH if it.gives_epochs else 0,
            at_most=None if it.gives_epochs else _FIRST_END_WITH_EPOCH - 1,
        )
        if response.error_code in _LOST or (response.error_code == _FORGOTTEN and not committed):
            return Outcome.LOST
        if response.error_code:
            what = f"transaction {quoted(it.transactional_id)} cannot be {'committed' if committed else 'aborted'}"
            raise refused(what, response.error_code)
        return Outcome.DONE

    return cluster.call_coordinator(CoordinatorKind.TRANSACTION, it.transactional_id, call)


class PartWriter:
    """Writes a task's part. A context manager, which aborts the part unless `finish` was called. Raises ClientError.

    transactional_id: the task's own. A transaction that is open under it is aborted.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        task: int,
        *,
        begun_ms: int,
        timeout_ms: int,
        compression: int = NONE,
    ) -> None:
        self._producer = Producer(
            cluster,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            compression=compression,
        )
        self._transactional_id = transactional_id
        self._task = task
        self._begun_ms = begun_ms
        self._producer.init()
        self._producer.begin()
        self._is_finished = False
        self.records = RecordWriter(cluster, self._producer, first_partition=task)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_finished:
            with suppress(ClientError):  # its time-out ends it, too
                self._producer.abort()

    def finish(self) -> Part:
        """Writes the remaining records. The transaction stays open."""
        self.records.flush()
        self._is_finished = True
        it = self._producer
        name = OpenTransaction(self._transactional_id, it.producer_id, it.producer_epoch, it.gives_epochs)
        is_empty = not self.records.records
        return Part(self._task, self.records.records, self.records.checksum, None if is_empty else name, self._begun_ms)


def end_all(cluster: Cluster, parts: Iterable[Part], *, committed: bool) -> list[Part]:
    """Ends the transactions of all parts. Returns the lost ones. Raises ClientError at the first unknown outcome."""
    return [
        part
        for part in parts
        if part.transaction is not None and end(cluster, part.transaction, committed=committed) is Outcome.LOST
    ]


def abort_orphans(cluster: Cluster, prefix: str) -> list[str]:
    """Aborts the open transactions under transactional ids with this prefix: those of dead or superfluous tasks.

    Returns their ids. Raises ClientError.
    """
    cluster.metadata([])
    answers = cluster.call_each({node_id: ListTransactionsRequest(["Ongoing"]) for node_id in cluster.node_ids()})
    found: list[str] = []
    for answer in answers.values():
        if isinstance(answer, ClientError):
            raise answer
        listed: ListTransactionsResponse = answer
        if listed.error_code:
            raise refused("the open transactions cannot be listed", listed.error_code)
        found += [it.transactional_id for it in listed.transaction_states if it.transactional_id.startswith(prefix)]
    for transactional_id in sorted(found):
        Producer(cluster, transactional_id=transactional_id).init()
    return sorted(found)
