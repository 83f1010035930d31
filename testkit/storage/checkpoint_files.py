"""The checkpoint files of a log dir."""

from __future__ import annotations

from pathlib import Path

CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


def rows_of(checkpoint: Path) -> list[str]:
    return checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
