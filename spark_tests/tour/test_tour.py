"""The tour, block by block."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.places import REPOSITORY
from kwire.pipeline.warehouse import NAMESPACE, parse_warehouse

from ..pipeline.commands import spark_environment
from .__main__ import APART
from .local_maven import write_spark_conf

TOUR = REPOSITORY / "docs" / "tour.md"

_ENDS_WITHIN_S = 1500


@pytest.mark.timeout(1800)
@pytest.mark.soak  # ten Java processes, one after the other
def test_the_tour_runs_as_it_is_printed(tmp_path: Path) -> None:
    folder = tmp_path / "tour"
    folder.mkdir()
    conf = write_spark_conf(tmp_path / "spark", {"spark.local.dir": str(tmp_path), "spark.driver.memory": "1g"})
    environment = {
        **spark_environment(),
        "SPARK_CONF_DIR": str(conf),
        "MPLBACKEND": "agg",
    }
    done = subprocess.run(
        [*_apart(), sys.executable, "-m", "spark_tests.tour", folder, TOUR],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_ENDS_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"

    catalog = parse_warehouse(str(folder / "warehouse"), {}).pyiceberg_catalog()
    rows = catalog.load_table((NAMESPACE, "orders")).scan(selected_fields=("kafka",)).to_arrow()["kafka"].to_pylist()
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) > 100_000
    assert (folder / "job.png").stat().st_size > 10_000


def _apart() -> tuple[str, ...]:
    """What gives a command a network of its own, where this machine has such a thing."""
    if shutil.which(APART[0]) is None or subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        return ()
    return APART
