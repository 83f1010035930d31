"""The results of a run in a JSON file."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import attrs

import kwire
from benchmarks import machine
from benchmarks.options import Options


@attrs.define
class Entry:
    """A round of one broker in one scenario; or of a bare limit, which has no broker."""

    scenario: str
    number: int
    broker: str
    figures: dict[str, float] = attrs.Factory(dict)
    error: str | None = None
    took_s: float = 0.0


@attrs.define
class Results:
    taken: str = ""
    kwire: str = ""
    machine: dict[str, str] = attrs.Factory(dict)
    options: dict[str, float] = attrs.Factory(dict)
    brokers: dict[str, str] = attrs.Factory(dict)  # name and what stands behind it; the first is the baseline
    about: dict[str, str] = attrs.Factory(dict)  # scenario: what it does
    limit_of: dict[str, str] = attrs.Factory(dict)  # scenario: the bare limit that it is compared with
    entries: list[Entry] = attrs.Factory(list)
    limits: list[Entry] = attrs.Factory(list)

    @classmethod
    def new(cls, brokers: dict[str, str], options: Options) -> Results:
        taken = time.strftime("%Y-%m-%d %H:%M %Z")
        return cls(taken, _kwire_version(), machine.describe(), attrs.asdict(options), brokers)

    @classmethod
    def load(cls, path: Path) -> Results:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name in ("entries", "limits"):
            content[name] = [Entry(**entry) for entry in content[name]]
        return cls(**content)

    def add(self, other: Results) -> None:
        """Takes the scenarios of another run over: a whole one may be made in parts."""
        self.brokers |= other.brokers
        self.about |= other.about
        self.limit_of |= other.limit_of
        self.entries += other.entries
        self.limits += other.limits

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(attrs.asdict(self), indent=1) + "\n", encoding="utf-8")

    def rounds(self, scenario: str, broker: str) -> dict[int, dict[str, float]]:
        """The figures of the rounds that went well, by number."""
        return {
            entry.number: entry.figures
            for entry in self.entries
            if entry.scenario == scenario and entry.broker == broker and entry.error is None
        }


def _kwire_version() -> str:
    """Returns kwire's version; with the commit, if there is a repository."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return f"{kwire.__version__} {done.stdout.strip()}".strip()
