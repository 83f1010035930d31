"""Fixtures of several modules. A module's own fixture of the same name takes precedence there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.node.broker import Broker
from testkit.basics import ownership_guard
from testkit.cli import log_dirs
from testkit.scenes import folder_scene
from testkit.scenes.folder_scene import Disks

ownership_guard.install()


@pytest.fixture
def disks() -> Disks:
    """Two disks in memory."""
    return folder_scene.new_disks()


@pytest.fixture
def broker(disks: Disks) -> Iterator[Broker]:
    """A broker with a log dir on each of `disks`. Faults that a test sets end with the test."""
    opened = folder_scene.open_broker(disks)
    yield opened
    for disk in disks.values():
        disk.before_operation = None
    opened.close()


@pytest.fixture(scope="session")
def made_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir as `log_dirs.make_data` leaves it, to read; a test that changes it takes a copy."""
    path = tmp_path_factory.mktemp("made")
    log_dirs.make_data(path)
    return path
