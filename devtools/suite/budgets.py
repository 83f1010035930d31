"""The pytest plugin that compares what each group of tests cost with its budget (`--budgets=test`, `--budgets=more`).

A cost is in CPU seconds, of the test processes and of all that they start: other load on the machine hardly changes
it, and wall time it would. A group fails the run when it costs more than twice its budget. A slow machine is
allowed for: before a run fails, a fixed piece of work is timed, and the group is compared with the others. Where memory
is slow, all groups cost up to twice as much, and that small piece of work does not. The last line of a run that fails
for this names the group, since a table further up is out of sight.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from statistics import median
from typing import Any

import pytest

from devtools.suite.cpu import cpu_seconds, machine_slowness
from devtools.suite.groups import GROUPS, Tier, group_of

FAILS_AT = 2.0
"""A group fails at this multiple of its budget."""

LEAST_GROUPS = 8
"""The number of groups in a run from which the others show how slow the machine is."""

MOST_EXCESS = 2.0
"""The largest excess that a slow machine explains. If most groups cost more, their tests have become dearer."""


class _Meter:
    """Runs in a process with tests: reads the clock where a file's tests begin and end."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()
        """The number of tests of each group."""
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        """The CPU seconds of each file."""
        self._file: str | None = None
        self._began_s = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        file = _file_of(item)
        if file != self._file:
            self._file, self._began_s = file, cpu_seconds()
        self.tests[group_of(item.nodeid).name] += 1
        result = yield
        if nextitem is None or _file_of(nextitem) != file:
            self.cpu_s[file] += cpu_seconds() - self._began_s
            self._file = None
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["tests_of_groups"] = dict(self.tests)
            output["cpu_s_of_files"] = dict(self.cpu_s)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


class _Judge:
    """Runs in the process that reports: adds up the costs, prints them, and fails the run."""

    def __init__(self, meter: _Meter, tier: Tier) -> None:
        self._tier = tier
        self._tests = meter.tests
        self._cpu_s = meter.cpu_s
        self._too_dear: list[str] = []
        self._slowness = 1.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})  # a process that crashed has none
        self._tests.update(output.get("tests_of_groups", {}))
        for file, cpu_s in output.get("cpu_s_of_files", {}).items():
            self._cpu_s[file] += cpu_s

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        cpu_s = of_groups(self._cpu_s)
        if over(cpu_s, 1.0, self._tier):
            self._slowness = max(1.0, machine_slowness(), typical_excess(cpu_s, self._tier))
            self._too_dear = over(cpu_s, self._slowness, self._tier)
        if self._too_dear and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        yield  # Below pytest's messages about single tests: they may be long.
        cpu_s = of_groups(self._cpu_s)
        terminalreporter.section("budgets (CPU seconds)")
        terminalreporter.line(f"{'group':24}{'tests':>8}{'CPU s':>9}{'budget':>9}  dearest file")
        for group in GROUPS:
            if self._tests[group.name]:
                dearest = "".join(self._dearest(group.name, 1))
                terminalreporter.line(
                    f"{group.name:24}{self._tests[group.name]:8,}{cpu_s[group.name]:9.1f}{group.budget_of(self._tier):9}"
                    f"  {dearest}"
                )
        budgets = sum(group.budget_of(self._tier) for group in GROUPS if self._tests[group.name])
        terminalreporter.line(f"{'in all':24}{self._tests.total():8,}{sum(cpu_s.values()):9.1f}{budgets:9}")

    def _dearest(self, group: str, count: int) -> list[str]:
        of_group = {file: cpu_s for file, cpu_s in self._cpu_s.items() if group_of(file).name == group}
        dearest = sorted(of_group, key=of_group.__getitem__, reverse=True)[:count]
        return [f"{file} ({of_group[file]:.1f})" for file in dearest]

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """The last lines of the run, below pytest's count of what passed."""
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        cpu_s = of_groups(self._cpu_s)
        for group in GROUPS:
            if group.name in self._too_dear:
                budget_cpu_s = group.budget_of(self._tier)
                reporter.write_line(
                    f"FAILED {group.name}: {cpu_s[group.name]:.1f} CPU seconds are more than {FAILS_AT:g} times the "
                    f"budget of {budget_cpu_s}, on a machine that is {self._slowness:.1f} times as slow as the one "
                    "that the budgets are for. Make its tests cheaper, mark some of them with more or soak, or change "
                    f"the budget in devtools/suite/groups.py. Dearest: {', '.join(self._dearest(group.name, 3))}",
                    red=True,
                )


def of_groups(cpu_s_of_files: Mapping[str, float]) -> dict[str, float]:
    """Returns CPU seconds by the names of groups."""
    cpu_s: defaultdict[str, float] = defaultdict(float)
    for file, spent in cpu_s_of_files.items():
        cpu_s[group_of(file).name] += spent
    return cpu_s


def over(cpu_s: Mapping[str, float], slowness: float, tier: Tier) -> list[str]:
    """The names of the groups that fail the run."""
    factor = FAILS_AT * slowness
    return [group.name for group in GROUPS if cpu_s.get(group.name, 0.0) > factor * group.budget_of(tier)]


def typical_excess(cpu_s: Mapping[str, float], tier: Tier) -> float:
    """Returns the median of the groups' costs, each divided by its budget, up to 2; 1 if the run has few groups."""
    excesses = [
        cpu_s[group.name] / group.budget_of(tier)
        for group in GROUPS
        if cpu_s.get(group.name) and group.budget_of(tier) > 0
    ]
    return min(median(excesses), MOST_EXCESS) if len(excesses) >= LEAST_GROUPS else 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budgets", choices=[it.value for it in Tier], help="Fail when a group of tests costs twice its budget there."
    )


def pytest_configure(config: pytest.Config) -> None:
    tier = config.getoption("budgets")
    if tier is not None:
        meter = _Meter()
        config.pluginmanager.register(meter, "budget meter")
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(_Judge(meter, Tier(tier)), "budget judge")
