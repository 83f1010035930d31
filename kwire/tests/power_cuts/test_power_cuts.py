"""The power fails after every change that a broker makes to its disk, and the process dies there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from devtools.suite.tiers import small_and_full
from kwire.metadata.controller.deciding import Decision
from kwire.metadata.service import MetadataService
from testkit.mutants.changes import Mutant, always, at_large, instead, without
from testkit.mutants.replays import MARKERS_ABORT, PENDING_OFFSETS_COUNT, REPLAY, RESUME
from testkit.worlds.power_cuts.broker_traces import BROKER_TRACES, broker_trace
from testkit.worlds.power_cuts.caught import expect_caught, expect_made
from testkit.worlds.power_cuts.sweep import Bounds, Trace, sweep
from testkit.worlds.power_cuts.transaction_traces import TRANSACTION_TRACES, transaction_trace

BOUNDS = Bounds(states=20, states_again=2, lives=200)
SMALL_BOUNDS = Bounds(states=2, states_again=1, lives=400, every=4, every_again=6)
TRANSACTION_BOUNDS = Bounds(states=3, states_again=1, lives=500)
SMALL_TRANSACTION_BOUNDS = Bounds(states=1, states_again=1, lives=500, every=8, every_again=6)
"""Less is pending at each moment, and a state takes longer to look at."""

HELD_FROM = "kwire.replicas.flush_gate:FlushGate.held_from"
NEVER = 1 << 62
"""An offset that no log reaches."""


async def at_once(_topic: object, _index: int) -> None: ...


async def nothing(_log: object) -> None: ...


async def only_decide(service: MetadataService, rule: Callable[..., Any], *arguments: Any) -> Any:
    return Decision(rule, arguments).on(service.state)[1]


MUTANTS = [
    Mutant(
        "metadata is answered before it is flushed",
        "broker: topics come and go",
        instead(
            "kwire.metadata.log:FileMetadataLog._flush",
            lambda _: nothing,
            seen_by="kwire.metadata.log:FileMetadataLog.append",
        ),
    ),
    Mutant(
        "flush.messages is not heeded",
        "broker: flush each append",
        instead(HELD_FROM, always(NEVER), seen_by="kwire.replicas.partition:Partition._advance_high_watermark"),
    ),
    Mutant(
        "a folder that was given up comes back",
        "broker: topics come and go",
        instead(
            "kwire.replicas.table:PartitionTable._sync_given_up",
            lambda _: nothing,
            seen_by="kwire.replicas.table:PartitionTable._delete",
        ),
    ),
    Mutant(
        "committed offsets are not replayed to their end",
        "broker: stop and start",
        instead(
            "kwire_storage.log.log:Log.batches",
            lambda batches: lambda log, offset: list(batches(log, offset))[:-1],
            seen_by=REPLAY,
        ),
    ),
    Mutant(
        "producer ids are given before they are recorded",
        "broker: produce and commit",
        instead(
            "kwire.metadata.service:MetadataService.change",
            lambda _: only_decide,
            seen_by="kwire.metadata.producer_ids:ProducerIds._fetch",
        ),
    ),
    Mutant(
        "a decision is answered before it is flushed",
        "broker: transactions, each flushed",
        instead(
            "kwire.coordinators.internal_topic:InternalTopic.committed",
            lambda _: at_once,
            seen_by="kwire.coordinators.runtime:CoordinatorRuntime.durable",
        ),
    ),
    Mutant(
        "markers are written before the decision is flushed",
        "broker: transactions, each flushed",
        without(
            "kwire.transactions.service:TransactionService._do_other",
            "kwire.coordinators.internal_topic:InternalTopic.when_committed",
        ),
    ),
    Mutant(
        "a transaction is complete before its marker is flushed",
        "broker: transactions, each flushed",
        without(
            "kwire.transactions.service:TransactionService._write_marker",
            "kwire.replicas.partition:Partition.when_committed",
        ),
    ),
    Mutant(
        "prepared transactions are not resumed",
        "broker: two producers, each flushed",
        without(RESUME, "kwire.transactions.completion:Transactions._finish"),
    ),
    Mutant(
        "open transactions have no deadline after a restart",
        "broker: transactions",
        without(RESUME, "kwire.transactions.completion:Transactions._set_deadline"),
    ),
    Mutant(
        "pending offsets count after a restart",
        "broker: transactions",
        PENDING_OFFSETS_COUNT,
    ),
    Mutant(
        "committed offsets of transactions do not count after a restart",
        "broker: transactions",
        MARKERS_ABORT,
    ),
    Mutant(
        "what hangs is not listed",
        "broker: two producers",
        instead(
            "kwire.admin.hanging:still_expected",
            lambda _: lambda _admin, old: old,
            seen_by="kwire.admin.hanging:find_hanging",
        ),
    ),
]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Turns logging off: each of thousands of recoveries would have its line."""
    caplog.set_level(logging.CRITICAL, "kwire")


@small_and_full
@pytest.mark.parametrize("name", BROKER_TRACES)
def test_whatever_a_crash_leaves_holds(name: str, *, full: bool) -> None:
    sweep(broker_trace(name), BOUNDS if full else SMALL_BOUNDS)


@small_and_full
@pytest.mark.parametrize("name", TRANSACTION_TRACES)
def test_transactions_survive_whatever_a_crash_leaves(name: str, *, full: bool) -> None:
    sweep(transaction_trace(name), TRANSACTION_BOUNDS if full else SMALL_TRANSACTION_BOUNDS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_made(mutant: Mutant) -> None:
    expect_made(trace_named, mutant)


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_caught(mutant: Mutant) -> None:
    with at_large(mutant.change):
        expect_caught(trace_named, mutant.trace)


def trace_named(name: str) -> Trace:
    return broker_trace(name) if name in BROKER_TRACES else transaction_trace(name)
