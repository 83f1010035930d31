"""Every test is in a group, what belongs together stays together, and a group that costs too much is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devtools.places import REPOSITORY
from devtools.suite.budgets import MOST_EXCESS, over, typical_excess
from devtools.suite.cpu import cpu_seconds
from devtools.suite.groups import GROUPS, Tier, group_of, place_in_order, unit_of

FOLDERS = ("protocol", "storage", "kwire", "compat_tests", "spark_tests", "benchmarks", "devtools")
FILES = [
    str(path.relative_to(REPOSITORY)) for folder in FOLDERS for path in Path(REPOSITORY, folder).rglob("test_*.py")
]


def test_every_file_of_tests_is_in_a_group() -> None:
    assert len(FILES) > 150
    for file in FILES:
        group_of(f"{file}::test")


def test_a_file_is_in_the_group_that_names_it_most_exactly() -> None:
    assert group_of("kwire/tests/network/test_fuzz.py::test").name == "fuzz"
    assert group_of("kwire/tests/cli/test_cli.py::test").name == "server"
    with pytest.raises(LookupError, match=r"elsewhere/test_it\.py is in no group"):
        group_of("elsewhere/test_it.py::test")


def test_one_process_has_all_of_a_spark_session() -> None:
    of_sessions = [file for file in FILES if file.startswith("spark_tests/") and not file.endswith("/test_kills.py")]
    assert {unit_of(f"{file}::test") for file in of_sessions} == {"Spark", "tables"}
    assert unit_of("storage/tests/log/test_index.py::a") == unit_of("storage/tests/log/test_index.py::b[1]")
    cuts = "storage/tests/power_cuts/test_power_cuts.py"
    assert unit_of(f"{cuts}::test[a]") != unit_of(f"{cuts}::test[b]")


def test_what_takes_longest_begins_first() -> None:
    assert place_in_order("spark_tests/pipeline/test_append.py::test") == 0


def test_a_machine_is_slow_on_which_most_groups_cost_more() -> None:
    budgets = {group.name: group.test_cpu_s for group in GROUPS if group.test_cpu_s}
    assert typical_excess({name: 1.6 * budget for name, budget in budgets.items()}, Tier.TEST) == pytest.approx(1.6)
    assert typical_excess({name: 3.0 * budget for name, budget in budgets.items()}, Tier.TEST) == MOST_EXCESS
    one_dear = {name: 0.9 * budget for name, budget in budgets.items()} | {"clients": 3.0 * budgets["clients"]}
    assert typical_excess(one_dear, Tier.TEST) == pytest.approx(0.9)
    assert typical_excess({"clients": 3.0 * budgets["clients"]}, Tier.TEST) == 1.0, "there are too few to compare with"


def test_a_group_fails_at_twice_its_budget_and_later_on_a_slow_machine() -> None:
    clients = group_of("compat_tests/test_acls.py::test")
    assert over({clients.name: 2.0 * clients.test_cpu_s}, 1.0, Tier.TEST) == []
    assert over({clients.name: 2.1 * clients.test_cpu_s}, 1.0, Tier.TEST) == [clients.name]
    assert over({clients.name: 2.1 * clients.test_cpu_s}, 1.1, Tier.TEST) == []


def test_a_run_whose_tests_passed_and_cost_too_much_ends_with_the_group_that_failed_it(tmp_path: Path) -> None:
    plugin = tmp_path / "frugal.py"
    plugin.write_text(
        "def pytest_configure(config):\n"
        "    from devtools.suite import budgets, groups\n"
        "    budgets.GROUPS = (groups.Group('tools', groups.Unit.MODULE, -1, 0, ('devtools/',)),)\n"
    )
    cheap = "devtools/tests/test_suite.py::test_what_takes_longest_begins_first"
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "frugal", "-p", "no:cacheprovider", "--budgets=test", cheap]
    ran = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stderr
    *_, passed, failed = ran.stdout.splitlines()
    assert "1 passed" in passed
    assert failed.startswith("FAILED tools: ")
    assert "times the budget of -1" in failed
    assert "Dearest: devtools/tests/test_suite.py (" in failed


BUSY = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\nsys.stdin.read()"


def test_cpu_seconds_of_processes_count_while_they_run_and_when_they_have_ended() -> None:
    before = cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        running = cpu_seconds() - before
        busy.communicate()
    ended = cpu_seconds() - before
    assert 0.45 < running <= ended + 0.05


def test_waiting_costs_nothing() -> None:
    before = cpu_seconds()
    time.sleep(0.2)
    assert cpu_seconds() - before < 0.1
