"""The machine notices mistakes: each of these breaks what exactly once rests on, somewhere between client and disk."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode

from kwire.transactions.records import TransactionChange
from testkit.mutants.changes import Change, Function, Mutant, always, instead, without
from testkit.mutants.lives import Lives, assert_has_a_target
from testkit.mutants.replays import MARKERS_ABORT, PENDING_OFFSETS_COUNT, RESUME
from testkit.worlds.exactly_once.machine import ExactlyOnceMachine

LIVES = Lives(ExactlyOnceMachine, seed=7, examples=300, steps=30)


def mistake(name: str, change: Change) -> Mutant:
    return Mutant(name, "", change)


APPLY_BATCH = "kwire_storage.producers.markers:apply_batch"
OVERLAPPING = "kwire_storage.producers.txn_index:overlapping"
FIRST_UNDECIDED = "kwire_storage.producers.states:ProducerStates.first_undecided_offset"
FIRST_UNSTABLE = "kwire_storage.producers.states:ProducerStates.first_unstable_offset"
WRITE_MARKER = "kwire.transactions.service:TransactionService._write_marker"
TRANSACTIONS = "kwire.transactions.completion:Transactions"
TRANSACTION = "kwire.transactions.transaction:Transaction"


def without_the_last(overlapping: Function) -> Function:
    def mistaken(entries: Any, start_offset: int, upper_bound: int) -> Any:
        found, is_all = overlapping(entries, start_offset, upper_bound)
        return [entry for entry in found if entry.first_offset < upper_bound - 1], is_all

    return mistaken


def ending_early(overlapping: Function) -> Function:
    def mistaken(entries: Any, start_offset: int, upper_bound: int) -> Any:
        for number, entry in enumerate(entries):
            if entry.last_stable_offset >= start_offset:
                return overlapping(entries[: number + 1], start_offset, upper_bound)[0], True
        return overlapping(entries, start_offset, upper_bound)

    return mistaken


def one_later(first_undecided_offset: Function) -> Function:
    def mistaken(producers: Any) -> int | None:
        first: int | None = first_undecided_offset(producers)
        return None if first is None else first + 1

    return mistaken


def only_the_first(write_marker: Function) -> Function:
    def mistaken(service: Any, index: int, marker: Any, partition: Any) -> bool:
        is_first = partition == next(iter(marker.partitions))
        return bool(write_marker(service, index, marker, partition)) if is_first else True

    return mistaken


def keeping_the_epoch(initialized: Function) -> Function:
    def mistaken(transaction: Any, expected: Any, **how: Any) -> Any:
        begun = initialized(transaction, expected, **how)
        if expected is None and not transaction.is_exhausted:
            return attrs.evolve(begun, producer_epoch=transaction.producer_epoch)
        return begun

    return mistaken


def none_refused(verify_partitions: Function) -> Function:
    def mistaken(*args: Any) -> Any:
        errors = verify_partitions(*args)
        is_in = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.NONE}
        return {partition: is_in.get(error, error) for partition, error in errors.items()}

    return mistaken


def done_at_once(_enlist: Function) -> Function:
    async def mistaken(*_args: Any) -> None: ...

    return mistaken


def changed_nevertheless(append: Function) -> Function:
    def mistaken(transactions: Any, turn: Any, transaction: Any, *then: Any) -> None:
        def appended(turn: Any, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                transactions.apply(TransactionChange(transaction.transactional_id, transaction))
            for it in then:
                it(turn, error)

        append(transactions, turn, transaction, appended)

    return mistaken


def noting_but_denying(is_aborted: Function) -> Function:
    def mistaken(*args: Any) -> bool:
        is_aborted(*args)
        return False

    return mistaken


MISTAKES = [
    mistake(
        "aborted transactions are not put into the index",
        instead("kwire_storage.producers.states:CompletedTxn.aborted", always(False), seen_by=APPLY_BATCH),
    ),
    mistake(
        "an aborted transaction that begins with the last batch read is not told",
        instead(OVERLAPPING, without_the_last),
    ),
    mistake(
        "an aborted transaction that ended before is told",
        instead(OVERLAPPING, lambda overlapping: lambda entries, _start, upper: overlapping(entries, -1, upper)),
    ),
    mistake(
        "later segments are not asked for aborted transactions",
        instead(OVERLAPPING, ending_early),
    ),
    mistake(
        "open transactions do not hold readers back",
        instead(FIRST_UNDECIDED, always(None), seen_by=FIRST_UNSTABLE),
    ),
    mistake(
        "the first record of an open transaction is stable",
        instead(FIRST_UNDECIDED, one_later, seen_by=FIRST_UNSTABLE),
    ),
    mistake(
        "read_committed reads up to the high watermark",
        instead(
            "kwire.replicas.partition:Partition.last_stable_offset",
            lambda _: lambda partition: partition.high_watermark,
            seen_by="kwire.replicas.reading:_read",
        ),
    ),
    mistake(
        "a repeated batch is appended",
        without("kwire.replicas.partition:Partition.append", "kwire_storage.producers.states:ProducerStates.check"),
    ),
    mistake(
        "a marker is skipped",
        instead(WRITE_MARKER, only_the_first, seen_by="kwire.transactions.service:TransactionService._do_other"),
    ),
    mistake(
        "a marker that could not be written counts as written",
        instead("kwire.transactions.service:_NEEDLESS", lambda _: frozenset(ErrorCode)),
    ),
    mistake(
        "markers are not tried again",
        without(f"{TRANSACTIONS}._finish", f"{TRANSACTIONS}._try_again_later"),
    ),
    mistake(
        "each marker commits",
        instead(
            "kwire.transactions.effects:WriteMarkers.of",
            lambda of: lambda *args: attrs.evolve(of(*args), committed=True),
        ),
    ),
    mistake(
        "offsets of an aborted transaction count",
        instead(
            "kwire.groups.offsets.pending:PendingOffsets.end",
            lambda end: lambda offsets, producer_id, *, committed: end(offsets, producer_id, committed=True),
        ),
    ),
    mistake(
        "groups are not told of markers",
        instead(
            "kwire.replicas.partition:Partition.on_marker",
            always(lambda _producer_id, _committed: None),
            seen_by="kwire.replicas.partition:Partition.write_marker",
        ),
    ),
    mistake(
        "a replay drops the offsets of transactions",
        MARKERS_ABORT,
    ),
    mistake(
        "a replay counts pending offsets",
        PENDING_OFFSETS_COUNT,
    ),
    mistake(
        "a restart forgets what is prepared",
        without(RESUME, f"{TRANSACTIONS}._finish"),
    ),
    mistake(
        "a restart forgets deadlines",
        without(RESUME, f"{TRANSACTIONS}._set_deadline"),
    ),
    mistake(
        "a restart forgets open transactions of the snapshot",
        instead("kwire_storage.producers.snapshots:_entry", lambda entry: lambda *args: entry(*args[:-1], -1)),
    ),
    mistake(
        "a transaction that takes too long is not aborted",
        without(f"{TRANSACTIONS}._due", f"{TRANSACTIONS}.fence"),
    ),
    mistake(
        "a fence keeps the epoch",
        instead(
            f"{TRANSACTION}._prepared_with_bump",
            lambda _: (
                lambda transaction, committed, _version, _new_id, now_ms: transaction._prepared(committed, now_ms)
            ),
            seen_by=f"{TRANSACTION}.fenced",
        ),
    ),
    mistake(
        "a producer that starts keeps the epoch",
        instead(f"{TRANSACTION}.initialized", keeping_the_epoch),
    ),
    mistake(
        "the coordinator takes older epochs",
        instead(
            f"{TRANSACTION}._check_producer",
            lambda check: (
                lambda transaction, producer_id, epoch: check(
                    transaction, producer_id, max(epoch, transaction.producer_epoch)
                )
            ),
        ),
    ),
    mistake(
        "a transaction that ended otherwise is said to have ended so",
        instead(f"{TRANSACTION}._check_outcome", lambda _: lambda transaction, _committed: transaction),
    ),
    mistake(
        "a late write is taken after the marker",
        instead(
            "kwire.replicas.partition:Partition.holds_transaction",
            always(True),
            seen_by="kwire.replicas.enlisting:enlist",
        ),
    ),
    mistake(
        "a partition is verified that is no part of the transaction",
        instead("kwire.transactions.shard:TransactionShard.verify_partitions", none_refused),
    ),
    mistake(
        "offsets are taken without asking the coordinator",
        instead("kwire.handlers.txn_offset_commit:_enlist", done_at_once),
    ),
    mistake(
        "a decision that could not be written is told",
        instead(
            "kwire.coordinators.effects:Step.reply_when_appended",
            lambda reply: lambda turn, token, answer, _failed: reply(turn, token, answer, lambda _error: answer),
            seen_by="kwire.transactions.shard:TransactionShard.end",
        ),
    ),
    mistake(
        "an id changes although its record could not be written",
        instead(f"{TRANSACTIONS}.append", changed_nevertheless),
    ),
    mistake(
        "compaction takes aborted records for good ones",
        instead("kwire_storage.compaction.cleaning:Transactions.is_aborted", noting_but_denying),
    ),
    mistake(
        "compaction does not stop at an open transaction",
        instead(FIRST_UNSTABLE, always(None), seen_by="kwire_storage.compaction.planning:cleanable_end"),
    ),
]


@pytest.mark.parametrize("mistaken", MISTAKES, ids=lambda mutant: mutant.name)
def test_a_mistake_finds_its_place(mistaken: Mutant) -> None:
    assert_has_a_target(mistaken.change)


@pytest.mark.soak
@pytest.mark.parametrize("mistaken", MISTAKES, ids=lambda mutant: mutant.name)
def test_a_mistake_is_noticed(mistaken: Mutant) -> None:
    LIVES.assert_find(mistaken.change)


@pytest.mark.soak
def test_without_a_mistake_nothing_is_noticed() -> None:
    LIVES.live()
