"""Fixtures: a warehouse beside the shared Spark session, and jobs that run in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import Warehouse, parse_warehouse
from testkit.servers import brokers
from testkit.spark.jobs import Jobs


@pytest.fixture(scope="package")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A warehouse for all tests: a session opens a catalog once. Tables have the names of their tests' topics."""
    found = parse_warehouse(str(tmp_path_factory.mktemp("warehouse")), {})
    for name, value in found.spark_settings.items():
        spark.conf.set(name, value)
    return found


@pytest.fixture
def jobs(spark: SparkSession, broker: brokers.Broker, warehouse: Warehouse) -> Iterator[Jobs]:
    """Jobs on the shared broker."""
    with Topics(broker.bootstrap) as topics:
        yield Jobs(spark, broker.bootstrap, warehouse, topics)


@pytest.fixture
def sent(broker: brokers.Broker) -> Callable[..., None]:
    """Produces records into a topic of the shared broker: `sent(topic, [Record(...), ...])`."""
    from testkit.spark.records import produce

    return lambda topic, records: produce(broker.bootstrap, topic, records)


@pytest.fixture
def schema_file(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write
