"""The pytest plugin that compares text with a file beside the test (`--update-snapshots` writes the files instead).

A snapshot is for what people see, and is compared as a whole. What programs read is better asserted field by field.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import attrs
import pytest


@attrs.frozen
class Snapshot:
    """The files in the folder `snapshots` beside a module of tests."""

    folder: Path
    is_updated: bool

    def __call__(self, name: str, text: str) -> None:
        """Fails the test, with a diff, if the file `name`.txt has another text."""
        path = self.folder / f"{name}.txt"
        if self.is_updated:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        if text != expected:
            lines = unified_diff(expected.splitlines(), text.splitlines(), "expected", "shown", lineterm="")
            diff = "\n".join(lines) or "the last line ends in another way"
            pytest.fail(f"{path} has another text. --update-snapshots writes it:\n{diff}", pytrace=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots", action="store_true", help="Write the files of expected text instead of comparing them."
    )


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    return Snapshot(request.path.parent / "snapshots", request.config.getoption("--update-snapshots"))
