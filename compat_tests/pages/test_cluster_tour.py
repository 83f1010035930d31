"""docs/cluster-tour.md, block by block."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from devtools.places import REPOSITORY
from testkit.pages.apart import run_apart

TOUR = REPOSITORY / "docs" / "cluster-tour.md"


@pytest.mark.soak
def test_the_way_from_one_node_to_three_runs_as_it_is_printed(tmp_path: Path) -> None:
    folder = tmp_path / "tour"
    folder.mkdir()
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    run_apart(folder, TOUR, "--zookeeper", environment=environment, within_s=280)
