"""Fixtures: a broker's topics by either format."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from compat_tests import brokers
from kwire.pipeline.spark_source import register

from ..tables import READER_DEFAULTS, Tables
from .both import Both


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
