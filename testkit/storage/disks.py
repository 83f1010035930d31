"""The two disks, for tests that both must pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwire_storage.disk.files import Disk, RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk

both_disks = pytest.mark.parametrize("kind", ["real", "memory"])


def make_disk(kind: str, folder: Path) -> Disk:
    return RealDisk(folder) if kind == "real" else MemoryDisk()
