"""Runs a page in a network of its own, where this machine has such a thing: there the well-known ports are free."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from devtools.places import REPOSITORY

_APART: Final = ("unshare", "--user", "--map-root-user", "--net")


def run_apart(folder: Path, page: Path, *options: str, environment: Mapping[str, str], within_s: float) -> None:
    """`options` are those of `python -m testkit.pages`. Fails with what the block printed that failed."""
    done = subprocess.run(
        [*_apart(), sys.executable, "-m", "testkit.pages", folder, page, *options],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"


def _apart() -> tuple[str, ...]:
    if shutil.which(_APART[0]) is None:
        return ()
    tried = subprocess.run([*_APART, "true"], capture_output=True, check=False)
    return () if tried.returncode else _APART
