"""The command: breaks checks, one at a time, and reports those that no test has noticed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from enum import Enum
from typing import Final

import click
import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from devtools.places import REPOSITORY
from testkit.security.checks.breaking import OPTION
from testkit.security.checks.finding import Check
from testkit.security.checks.rooms import UNSEEN, Room, all_checks

_TEST_TIMEOUT_S: Final = 60
"""Without its check, a loop may have no end. A thread ends the process then, as hypothesis would try it again."""


class Outcome(Enum):
    RED = "a test fails"
    GREEN = "every test passes"
    NOT_RUN = "the tests cannot run"


def tested_without(room: Room, check: Check) -> tuple[Outcome, str]:
    """Returns True if the tests pass without the check, and the output of pytest."""
    outcome, printed = Outcome.GREEN, ""
    for tests in (room.own_tests(check), room.tests):
        if tests and outcome is Outcome.GREEN:
            outcome, printed = _outcome_of(tests, check)
    return outcome, printed


def _outcome_of(tests: Iterable[str], check: Check) -> tuple[Outcome, str]:
    # Rewriting the asserts of all modules takes longer than most of the tests.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--assert=plain", "-p", "no:cacheprovider"]
    command += ["-o", f"timeout={_TEST_TIMEOUT_S}", "-o", "timeout_method=thread"]
    command += ["-p", "testkit.security.checks.breaking", OPTION, check.name]
    ran = subprocess.run([*command, *tests], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    outcomes: dict[int, Outcome] = {pytest.ExitCode.TESTS_FAILED: Outcome.RED, pytest.ExitCode.OK: Outcome.GREEN}
    return outcomes.get(ran.returncode, Outcome.NOT_RUN), ran.stdout + ran.stderr


def complaint(check: Check, outcome: Outcome) -> str | None:
    if outcome is Outcome.RED and check.name in UNSEEN:
        return "a test notices it now: take it off the list UNSEEN in rooms.py"
    if outcome is Outcome.RED or (outcome is Outcome.GREEN and check.name in UNSEEN):
        return None
    return f"{outcome.value} without it"


@click.command()
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--list", "only_list", is_flag=True, help="Only list the checks.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="At once.")
@click.option("--verbose", is_flag=True, help="Print what pytest says where no test fails.")
def main(texts: tuple[str, ...], *, only_list: bool, jobs: int, verbose: bool) -> None:
    """Breaks every check of security whose name has one of these texts (or all), and runs the tests that should notice.

    Ends with 1 if no test noticed one of them. Add a test for it, or else the reason to UNSEEN, in rooms.py.
    """
    chosen = [it for it in all_checks() if not texts or any(text in it[1].name for text in texts)]
    if only_list:
        for _, check in chosen:
            click.echo(check.name)
        return
    console = Console(stderr=True, soft_wrap=True)
    complaints = 0
    began_s = time.monotonic()
    columns = (TextColumn("breaking checks"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(jobs) as pool:
        task = progress.add_task("", total=len(chosen))
        running = {pool.submit(tested_without, room, check): check for room, check in chosen}
        for done in as_completed(running):
            outcome, printed = done.result()
            problem = complaint(running[done], outcome)
            progress.advance(task)
            if problem is not None:
                complaints += 1
                console.print(f"{running[done].name}\n    {problem}", markup=False, highlight=False)
                if verbose:
                    console.print(printed, markup=False, highlight=False)
    took_s = time.monotonic() - began_s
    click.echo(f"{len(chosen)} checks broken in {took_s:.0f} s: {complaints} not as they should be")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main(prog_name="python -m testkit.security.checks")
