"""The power fails after every change that a broker makes to its disk, and the process dies there."""

from __future__ import annotations

import logging

import pytest

from kwire.tests.power_cuts.broker_traces import BROKER_TRACES, broker_trace
from storage.tests.power_cuts.mutants import Mutant, at_large, expect_caught
from storage.tests.power_cuts.sweep import Bounds, sweep

BOUNDS = Bounds(states=20, states_again=2, lives=200)

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
]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Each of thousands of recoveries would have its line."""
    caplog.set_level(logging.CRITICAL, "kwire.partitions")


@pytest.mark.parametrize("name", BROKER_TRACES)
def test_whatever_a_crash_leaves_holds(name: str) -> None:
    sweep(broker_trace(name), BOUNDS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_caught(mutant: Mutant) -> None:
    with at_large(mutant):
        expect_caught(broker_trace, mutant.trace)
