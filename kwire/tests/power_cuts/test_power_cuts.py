"""The power fails after every change that a broker makes to its disk, and the process dies there."""

from __future__ import annotations

import logging

import pytest

from kwire.tests.power_cuts.broker_traces import BROKER_TRACES, broker_trace
from kwire.tests.power_cuts.transaction_traces import TRANSACTION_TRACES, transaction_trace
from storage.tests.power_cuts.mutants import Mutant, at_large, expect_caught
from storage.tests.power_cuts.sweep import Bounds, Trace, sweep

BOUNDS = Bounds(states=20, states_again=2, lives=200)
TRANSACTION_BOUNDS = Bounds(states=3, states_again=1, lives=500)
"""Less is pending at each moment, and a state takes longer to look at."""

MUTANTS = [
    Mutant(
        "metadata is answered before it is flushed",
        "broker: topics come and go",
        "kwire.metadata.log:FileMetadataLog.append",
        "self.log.flush()",
        "pass",
    ),
    Mutant(
        "flush.messages is not heeded",
        "broker: flush each append",
        "kwire.flush_gate:FlushGate.when_flushed",
        "last_offset < self.held_from",
        "True",
    ),
    Mutant(
        "a folder that was given up comes back",
        "broker: topics come and go",
        "kwire.partitions:PartitionTable.apply",
        "self._sync_given_up()",
        "pass",
    ),
    Mutant(
        "committed offsets are not replayed to their end",
        "broker: stop and start",
        "kwire.internal_topic:InternalTopic.replay",
        "self._partition(index).log.batches()",
        "list(self._partition(index).log.batches())[:-1]",
    ),
    Mutant(
        "producer ids are given before they are recorded",
        "broker: produce and commit",
        "kwire.metadata.service:MetadataService.next_producer_id",
        "self._commit_new([ProducerIdsRecord(self.node_id, epoch, first + PRODUCER_ID_BLOCK)])",
        "pass",
    ),
    Mutant(
        "a decision is answered before it is flushed",
        "broker: transactions, each flushed",
        "kwire.coordinators.runtime:CoordinatorRuntime.durable",
        "await self.topic.flushed(index)",
        "pass",
    ),
    Mutant(
        "markers are written before the decision is flushed",
        "broker: transactions, each flushed",
        "kwire.transactions.service:TransactionService._do_other",
        "decided is not None",
        "False",
    ),
    Mutant(
        "a transaction is complete before its marker is flushed",
        "broker: transactions, each flushed",
        "kwire.transactions.service:TransactionService._write_marker",
        "result.last_offset < found.flush_gate.held_from",
        "True",
    ),
    Mutant(
        "prepared transactions are not resumed",
        "broker: two producers, each flushed",
        "kwire.transactions.completion:Transactions.resume",
        "if known.transaction.is_prepared:",
        "if False:",
    ),
    Mutant(
        "open transactions have no deadline after a restart",
        "broker: transactions",
        "kwire.transactions.completion:Transactions.resume",
        "self._set_deadline(known)",
        "pass",
    ),
    Mutant(
        "pending offsets count after a restart",
        "broker: transactions",
        "kwire.coordinators.runtime:CoordinatorRuntime._replay",
        "logged.value, logged.producer_id",
        "logged.value, -1",
    ),
    Mutant(
        "committed offsets of transactions do not count after a restart",
        "broker: transactions",
        "kwire.internal_topic:InternalTopic.replay",
        "EndedTransaction(header.producer_id, marker.committed)",
        "EndedTransaction(header.producer_id, False)",
    ),
    Mutant(
        "what hangs is not listed",
        "broker: two producers",
        "kwire.cli.txn.hanging:find_hanging",
        "if it not in expected",
        "if False",
    ),
]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Each of thousands of recoveries would have its line."""
    caplog.set_level(logging.CRITICAL, "kwire")


@pytest.mark.parametrize("name", BROKER_TRACES)
def test_whatever_a_crash_leaves_holds(name: str) -> None:
    sweep(broker_trace(name), BOUNDS)


@pytest.mark.parametrize("name", TRANSACTION_TRACES)
def test_transactions_survive_whatever_a_crash_leaves(name: str) -> None:
    sweep(transaction_trace(name), TRANSACTION_BOUNDS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_caught(mutant: Mutant) -> None:
    with at_large(mutant):
        expect_caught(trace_named, mutant.trace)


def trace_named(name: str) -> Trace:
    return broker_trace(name) if name in BROKER_TRACES else transaction_trace(name)
