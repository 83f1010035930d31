"""The help of each command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from devtools.suite.snapshots import Snapshot
from kwire.cli import main
from testkit.cli.every_command import every_command

COLUMNS = 100


def file_of(words: str) -> str:
    return words.replace(" ", "-") or "kwire"


@pytest.mark.parametrize("words", [pytest.param(words, id=words or "kwire") for words, _ in every_command()])
def test_the_help_of_a_command(words: str, snapshot: Snapshot) -> None:
    shown, short = (
        CliRunner().invoke(main, [*words.split(), flag], prog_name="kwire", terminal_width=COLUMNS)
        for flag in ("--help", "-h")
    )
    assert (shown.exit_code, short.stdout) == (0, shown.stdout)
    snapshot(f"help/{file_of(words)}", shown.stdout)


def test_no_help_is_kept_of_a_command_that_is_gone() -> None:
    kept = {path.stem for path in Path(__file__).parent.glob("snapshots/help/*")}
    assert kept == {file_of(words) for words, _ in every_command()}
