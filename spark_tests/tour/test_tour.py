"""The tour, block by block."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.places import REPOSITORY
from kwire.pipeline.warehouse import NAMESPACE, parse_warehouse
from testkit.pages.apart import run_apart
from testkit.pages.local_maven import write_spark_conf
from testkit.spark.commands import spark_environment

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
    run_apart(folder, TOUR, environment=environment, within_s=_ENDS_WITHIN_S)

    catalog = parse_warehouse(str(folder / "warehouse"), {}).pyiceberg_catalog()
    rows = catalog.load_table((NAMESPACE, "orders")).scan(selected_fields=("kafka",)).to_arrow()["kafka"].to_pylist()
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) > 100_000
    assert (folder / "job.png").stat().st_size > 10_000
