"""What a test run tells at its end, beside what pytest does."""

from __future__ import annotations

import sys

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many states the power cuts of this run left, where they ran."""
    sweeping = sys.modules.get("storage.tests.power_cuts.sweep")
    if sweeping is None or not sweeping.TALLY.states:
        return
    tally = sweeping.TALLY
    terminalreporter.section(f"power cuts (seed {sweeping.SEED})")
    for name, count in tally.states.items():
        terminalreporter.line(f"{count:8,} states  {name}")
    terminalreporter.line(f"{tally.total:8,} states  in all, each restarted and checked")
