"""What a test run does besides what pytest does: side by side, budgets and snapshots (devtools/suite), a summary."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from devtools.suite.fast_paths import follow_environment

pytest_plugins = ("devtools.suite.side_by_side", "devtools.suite.budgets", "devtools.suite.snapshots")

# An example's time says how busy the machine is; pytest-timeout ends what hangs.
settings.register_profile("kwire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kwire")

follow_environment()

_power_cuts: Counter[str] = Counter()
"""States that other processes of this run looked at."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector leaves the tests and their modules alone, as they live to the end.

    It took a quarter of the time to collect 13,000 tests, and an eighth of the time of tests in memory.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    sweeping = sys.modules.get("testkit.worlds.power_cuts.sweep")
    output = getattr(session.config, "workeroutput", None)
    if sweeping is not None and output is not None:
        output["power_cuts"] = dict(sweeping.TALLY.states)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _power_cuts.update(getattr(node, "workeroutput", {}).get("power_cuts", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many states the power cuts of this run left, where they ran."""
    sweeping = sys.modules.get("testkit.worlds.power_cuts.sweep")
    states = _power_cuts + Counter(sweeping.TALLY.states if sweeping is not None else {})
    if not states:
        return
    terminalreporter.section("power cuts")
    for name, count in sorted(states.items()):
        terminalreporter.line(f"{count:8,} states  {name}")
    terminalreporter.line(f"{states.total():8,} states  in all, each restarted and checked")
