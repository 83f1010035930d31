"""The commands of `kwire txn`; they print columns or JSON."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import click
from kwire_protocol.kafka_error import quoted

from kwire.admin.hanging import find_hanging, still_expected
from kwire.admin.transactions import STATES, Described, Listed, OpenTransaction, TransactionAdmin
from kwire.cli.columns import Row, cell, printable, show
from kwire.cli.reaching import Reach
from kwire.client.errors import ClientError
from kwire.runtime.clock import SystemClock

_ID_COLUMNS = {
    "transactional_id": "TRANSACTIONAL ID",
    "coordinator_id": "COORDINATOR",
    "producer_id": "PRODUCER",
    "state": "STATE",
}
_HANGING_COLUMNS = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "producer_id": "PRODUCER",
    "producer_epoch": "EPOCH",
    "coordinator_epoch": "COORDINATOR EPOCH",
    "start_offset": "START OFFSET",
    "last_timestamp_ms": "LAST WRITE",
    "minutes": "MINUTES AGO",
}


@attrs.frozen
class Which:
    """A transaction in a partition, named by its start offset or by its producer."""

    topic: str
    partition: int
    start_offset: int | None
    producer_id: int | None

    def matches(self, it: OpenTransaction) -> bool:
        return it.start_offset == self.start_offset or it.producer_id == self.producer_id


def list_ids(reach: Reach, states: Sequence[str], *, as_json: bool) -> None:
    for state in states:
        if state not in STATES:
            raise click.UsageError(f"there is no state {state!r}, only {', '.join(STATES)}")
    with reach.cluster() as cluster:
        found = TransactionAdmin(cluster).list_transactions(states=states)
    if not found and not as_json:
        click.echo("no coordinator has a transactional id" + (" in that state" if states else ""))
        return
    show([_listed_row(it) for it in found], _ID_COLUMNS, as_json=as_json)


def list_hanging(reach: Reach, max_timeout_ms: int, topic: str | None, partition: int | None, *, as_json: bool) -> None:
    """Exits with 1 if a transaction hangs, or a partition could not be checked."""
    now_ms = SystemClock().now_ms()
    with reach.cluster() as cluster:
        transactions = find_hanging(
            TransactionAdmin(cluster), now_ms=now_ms, max_timeout_ms=max_timeout_ms, topic=topic, partition=partition
        )
    for problem in transactions.problems:
        click.echo(f"not looked at: {printable(problem)}", err=True)
    if transactions.found or as_json:
        show([_hanging_row(it, now_ms) for it in transactions.found], _HANGING_COLUMNS, as_json=as_json)
    elif not transactions.problems:
        click.echo("nothing hangs")
    if transactions.found and not as_json:
        click.echo("\nkwire txn abort --topic TOPIC --partition PARTITION --start-offset START ends one of them")
    if transactions.found or transactions.problems:
        raise click.exceptions.Exit(1)


def describe(reach: Reach, transactional_id: str, *, as_json: bool) -> None:
    with reach.cluster() as cluster:
        described = TransactionAdmin(cluster).describe_transactions([transactional_id])
    if transactional_id not in described:
        raise ClientError(
            f"no coordinator has transactional id {quoted(transactional_id)}: `kwire txn list` shows those that exist"
        )
    row = _described_row(described[transactional_id])
    if as_json:
        show([row], {}, as_json=True)
        return
    for name, value in row.items():
        if name == "partitions":
            value = ", ".join(f"{topic}-{index}" for topic, index in described[transactional_id].partitions)
        click.echo(f"{name.removesuffix('_ms').replace('_', ' '):17} {cell(name, value) or '-'}")


def abort(reach: Reach, which: Which, *, force: bool, confirm: bool) -> None:
    with reach.cluster() as cluster:
        admin = TransactionAdmin(cluster)
        transaction = find_one(admin, which)
        check_forgotten(admin, transaction, force=force)
        text = printable(
            f"the transaction of producer {transaction.producer_id}, epoch {transaction.producer_epoch}, "
            f"in {transaction.name} from offset {transaction.start_offset} on"
        )
        if confirm:
            click.confirm(f"abort {text}?", abort=True)
        admin.write_abort_marker(transaction)
        click.echo(f"aborted {text}")


def find_one(admin: TransactionAdmin, which: Which) -> OpenTransaction:
    """Raises ClientError if no such transaction is open."""
    transactions = admin.open_transactions(which.topic, which.partition)
    if transactions.problems:
        raise ClientError("; ".join(map(printable, transactions.problems)))
    for it in transactions.found:
        if which.matches(it):
            return it
    others = ", ".join(f"{it.start_offset} (producer {it.producer_id})" for it in transactions.found[:10])
    raise ClientError(
        printable(f"no such transaction is open in {which.topic}-{which.partition}; ")
        + (f"open there, by start offset: {others}" if others else "none is open there")
    )


def check_forgotten(admin: TransactionAdmin, transaction: OpenTransaction, *, force: bool) -> None:
    """Raises ClientError for a transaction that its coordinator will end, unless it is forced."""
    known = still_expected(admin, [transaction]).get(transaction)
    if known is not None and not force:
        raise ClientError(
            f"the coordinator, broker {known.coordinator_id}, will end this transaction by itself: transactional id "
            f"{quoted(known.transactional_id)} is {known.state}, its timeout {known.timeout_ms} ms. "
            "--force aborts it in this partition, even if it is committed in others"
        )


def _listed_row(it: Listed) -> Row:
    return {"type": "transactional_id", **attrs.asdict(it)}


def _described_row(it: Described) -> Row:
    partitions = [{"topic": topic, "partition": index} for topic, index in it.partitions]
    return {"type": "transaction", **attrs.asdict(it), "partitions": partitions}


def _hanging_row(it: OpenTransaction, now_ms: int) -> Row:
    return {"type": "hanging", **attrs.asdict(it), "minutes": (now_ms - it.last_timestamp_ms) // 60_000}
