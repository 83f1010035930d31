"""Fixtures: a broker's topics by either format."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from kwire.pipeline.spark_source import register
from testkit.servers import brokers
from testkit.spark.both import Both
from testkit.spark.tables import READER_DEFAULTS, Tables


@pytest.fixture(scope="package")
def registered(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture
def kwire(registered: SparkSession, broker: brokers.Broker) -> Tables:
    """The shared broker's topics by the format kwire."""
    return Tables(registered, broker.bootstrap, READER_DEFAULTS, kind="kwire")


@pytest.fixture
def both(kwire: Tables, tables: Tables) -> Both:
    return Both(kafka=tables, kwire=kwire)
