"""The pytest plugin that compares what each group of tests cost with its budget (`--budgets`).

A cost is in CPU seconds, of the test processes and of all that they start: what else runs on the machine hardly changes
it, and wall time it would. A group fails the run when it costs more than twice its budget. A slow machine is
allowed for: before a run fails, a fixed piece of work is timed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from typing import Any

import pytest

from devtools.suite.cpu import cpu_seconds, machine_slowness
from devtools.suite.groups import GROUPS, Group, group_of

FAILS_AT = 2.0
"""A group fails at so many times its budget."""


class _Meter:
    """In a process that runs tests: reads the clock where a group's tests begin and end."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self._group: Group | None = None
        self._began_s = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        group = group_of(item.nodeid)
        if group is not self._group:
            self._group, self._began_s = group, cpu_seconds()
        self.tests[group.name] += 1
        result = yield
        if nextitem is None or group_of(nextitem.nodeid) is not group:
            self.cpu_s[group.name] += cpu_seconds() - self._began_s
            self._group = None
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["tests_of_groups"] = dict(self.tests)
            output["cpu_s_of_groups"] = dict(self.cpu_s)


class _Judge:
    """Where the run is reported: sums up, tells, and fails the run."""

    def __init__(self, meter: _Meter) -> None:
        self._tests = meter.tests
        self._cpu_s = meter.cpu_s
        self._passed: list[str] = []
        self._slowness = 1.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})  # a process that crashed has none
        self._tests.update(output.get("tests_of_groups", {}))
        for name, cpu_s in output.get("cpu_s_of_groups", {}).items():
            self._cpu_s[name] += cpu_s

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if over(self._cpu_s, 1.0):
            self._slowness = max(1.0, machine_slowness())
            self._passed = over(self._cpu_s, self._slowness)
        if self._passed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("budgets (CPU seconds)")
        terminalreporter.line(f"{'group':24}{'tests':>8}{'CPU s':>9}{'budget':>9}")
        for group in GROUPS:
            if self._tests[group.name]:
                cpu_s = self._cpu_s[group.name]
                told = f"{group.name:24}{self._tests[group.name]:8,}{cpu_s:9.1f}{group.budget_cpu_s:9}"
                terminalreporter.line(told)
        for name in self._passed:
            terminalreporter.line(
                f"{name} took more than {FAILS_AT:g} times its budget, on a machine that is {self._slowness:.1f} times "
                "as slow as the one that the budgets are for. Make its tests cheaper, mark some of them with soak, or "
                "change the budget in devtools/suite/groups.py.",
                red=True,
            )


def over(cpu_s: Mapping[str, float], slowness: float) -> list[str]:
    """The names of the groups that fail the run."""
    return [group.name for group in GROUPS if cpu_s.get(group.name, 0.0) > FAILS_AT * group.budget_cpu_s * slowness]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budgets", action="store_true", help="Fail when a group of tests costs twice its budget.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("budgets"):
        meter = _Meter()
        config.pluginmanager.register(meter, "budget meter")
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(_Judge(meter), "budget judge")
