"""The machine notices mistakes: each of these breaks what exactly once rests on, somewhere between client and disk."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from kwire.tests.exactly_once.test_exactly_once_machine import ExactlyOnceMachine
from storage.tests.power_cuts.mutants import Mutant, at_large

SHORT = settings(
    max_examples=300,
    stateful_step_count=30,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


def mistake(name: str, place: str, old: str, new: str) -> Mutant:
    return Mutant(name, "", place, old, new)


MISTAKES = [
    mistake(
        "aborted transactions are not put into the index",
        "kwire_storage.markers:apply_batch",
        "completed.aborted and",
        "False and",
    ),
    mistake(
        "an aborted transaction that begins with the last batch read is not told",
        "kwire_storage.txn_index:overlapping",
        "entry.first_offset < upper_bound",
        "entry.first_offset < upper_bound - 1",
    ),
    mistake(
        "an aborted transaction that ended before is told",
        "kwire_storage.txn_index:overlapping",
        "entry.last_offset >= start_offset and ",
        "",
    ),
    mistake(
        "later segments are not asked for aborted transactions",
        "kwire_storage.txn_index:overlapping",
        "entry.last_stable_offset >= upper_bound",
        "entry.last_stable_offset >= start_offset",
    ),
    mistake(
        "open transactions do not hold readers back",
        "kwire_storage.producers:ProducerStates.first_unstable_offset",
        "return first\n",
        "return None\n",
    ),
    mistake(
        "the first record of an open transaction is stable",
        "kwire_storage.producers:ProducerStates.first_unstable_offset",
        "return first\n",
        "return None if first is None else first + 1\n",
    ),
    mistake(
        "read_committed reads up to the high watermark",
        "kwire.partition:Partition.read",
        "self.last_stable_offset if committed",
        "self.high_watermark if committed",
    ),
    mistake(
        "a repeated batch is appended",
        "kwire.partition:Partition.append",
        "header[9] >= 0 and",
        "False and",
    ),
    mistake(
        "a marker is skipped",
        "kwire.transactions.service:TransactionService._do_other",
        "for partition in effect.partitions if self._write_marker(index, effect, partition)",
        "for at, partition in enumerate(effect.partitions) if at > 0 or self._write_marker(index, effect, partition)",
    ),
    mistake(
        "a marker that could not be written counts as written",
        "kwire.transactions.service:TransactionService._write_marker",
        'tried again: %s", *partition, error)\n        return False',
        'tried again: %s", *partition, error)\n        return True',
    ),
    mistake(
        "markers are not tried again",
        "kwire.transactions.completion:Transactions._finish",
        "self._try_again_later(turn, known)",
        "pass",
    ),
    mistake(
        "each marker commits",
        "kwire.transactions.effects:WriteMarkers.of",
        "transaction.state is TransactionState.PREPARE_COMMIT",
        "True",
    ),
    mistake(
        "offsets of an aborted transaction count",
        "kwire.groups.pending_offsets:PendingOffsets.end",
        "if committed:",
        "if True:",
    ),
    mistake(
        "groups are not told of markers",
        "kwire.partition:Partition.write_marker",
        "self.on_marker(producer_id, committed)",
        "pass",
    ),
    mistake(
        "a replay drops the offsets of transactions",
        "kwire.internal_topic:InternalTopic.replay",
        "EndedTransaction(header.producer_id, marker.committed)",
        "EndedTransaction(header.producer_id, False)",
    ),
    mistake(
        "a replay counts pending offsets",
        "kwire.coordinators.runtime:CoordinatorRuntime._replay",
        "logged.value, logged.producer_id",
        "logged.value, -1",
    ),
    mistake(
        "a restart forgets what is prepared",
        "kwire.transactions.completion:Transactions.resume",
        "if known.transaction.is_prepared:",
        "if False:",
    ),
    mistake(
        "a restart forgets deadlines",
        "kwire.transactions.completion:Transactions.resume",
        "self._set_deadline(known)",
        "pass",
    ),
    mistake(
        "a restart forgets open transactions of the snapshot",
        "kwire_storage.producer_snapshots:_entry",
        "None if txn_first_offset < 0 else txn_first_offset",
        "None",
    ),
    mistake(
        "a transaction that takes too long goes on",
        "kwire.transactions.completion:Transactions._due",
        "self.fence(turn, transaction, failed)",
        "pass",
    ),
    mistake(
        "a fence keeps the epoch",
        "kwire.transactions.transaction:Transaction.fenced",
        "return self._prepared_with_bump(False, version, new_producer_id, now_ms)",
        "return self._prepared(False, now_ms)",
    ),
    mistake(
        "a producer that starts keeps the epoch",
        "kwire.transactions.transaction:Transaction.initialized",
        "self.producer_id, self.producer_epoch + 1, NO_EPOCH",
        "self.producer_id, self.producer_epoch, NO_EPOCH",
    ),
    mistake(
        "the coordinator takes older epochs",
        "kwire.transactions.transaction:Transaction._check_producer",
        "producer_epoch != self.producer_epoch",
        "producer_epoch > self.producer_epoch",
    ),
    mistake(
        "a transaction that ended otherwise is said to have ended so",
        "kwire.transactions.transaction:Transaction._check_outcome",
        "self.state is not wanted",
        "False",
    ),
    mistake(
        "a late write is taken after the marker",
        "kwire.handlers.produce_enlisting:enlist",
        "if partition.holds_transaction(header):",
        "if True:",
    ),
    mistake(
        "a partition is verified that is no part of the transaction",
        "kwire.transactions.shard:TransactionShard.verify_partitions",
        "if partition in transaction.partitions",
        "if True",
    ),
    mistake(
        "offsets are taken without asking the coordinator",
        "kwire.handlers.txn_offset_commit:_enlist",
        "for adds in (version >= FIRST_VERSION_THAT_ADDS, False):",
        "for adds in ():",
    ),
    mistake(
        "a decision that could not be written is told",
        "kwire.transactions.shard:TransactionShard.end",
        "lambda error: EndTxnResponse(error_code=error)",
        "lambda error: answer",
    ),
    mistake(
        "an id changes although its record could not be written",
        "kwire.transactions.completion:Transactions.append",
        "if error is ErrorCode.NONE:",
        "if True:",
    ),
    mistake(
        "compaction takes aborted records for good ones",
        "kwire_storage.cleaning:Transactions.is_aborted",
        "if ongoing is not None:",
        "if False:",
    ),
    mistake(
        "compaction does not stop at an open transaction",
        "kwire_storage.compaction:cleanable_end",
        "flushed if unstable is None else min(flushed, unstable)",
        "flushed",
    ),
]


@pytest.mark.parametrize("mistaken", MISTAKES, ids=lambda mutant: mutant.name)
def test_a_mistake_is_noticed(mistaken: Mutant) -> None:
    with at_large(mistaken), pytest.raises(Exception):  # noqa: B017 - whatever breaks by it
        run_state_machine_as_test(seed(6)(ExactlyOnceMachine), settings=SHORT)
