"""Something rots on what a power cut left, after every change of some traces; see `rotting.py`."""

from __future__ import annotations

import logging

import pytest
from kwire_storage.disk.medium import Medium

from devtools.suite.tiers import small_and_full
from testkit.worlds.power_cuts.rotting import examine_rotten
from testkit.worlds.power_cuts.storage_traces import STORAGE_TRACES, storage_trace
from testkit.worlds.power_cuts.sweep import SEED, TALLY, journal_of, states

CUTS, SMALL_CUTS = 20, 3
"""At each moment; something else rots in each."""


@small_and_full
@pytest.mark.parametrize("name", [name for name, (_, config) in STORAGE_TRACES.items() if not config.compacts])
def test_what_rots_is_reported_and_costs_nothing_else(
    name: str, caplog: pytest.LogCaptureFixture, *, full: bool
) -> None:
    caplog.set_level(logging.CRITICAL, "kwire_storage")
    trace = storage_trace(name)
    for state in states(f"{name}@{SEED}", Medium(), journal_of(trace, Medium()), CUTS if full else SMALL_CUTS):
        if state.moment.lost_power and examine_rotten(trace, state):
            TALLY.add(f"{name}, rotten")
