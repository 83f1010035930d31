"""Fixtures: the brokers, the Spark session, and topics as tables.

What is started for all tests ends with the last of them here: a process then runs tests of other folders.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from devtools.spark_session import spark_session
from testkit.raw import topics
from testkit.servers import brokers
from testkit.spark.tables import READER_DEFAULTS, Tables

_numbers = itertools.count(1)


def pytest_report_header() -> str:
    return f"spark tests against: {brokers.KIND} (KWIRE_COMPAT)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent.name}/"  # The parents of 17,000 paths would take half a second to make.
    for item in items:
        if item.nodeid.startswith(here):
            # pyspark leaves the sockets that rows came by to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="package")
def broker() -> Iterator[brokers.Broker]:
    """The broker under test; it stays up."""
    with brokers.shared_broker() as running:
        yield running


@pytest.fixture(scope="package")
def restartable_broker() -> Iterator[brokers.RestartableBroker]:
    """A broker to restart and to kill. A test leaves it running."""
    with brokers.restartable_broker() as running:
        yield running


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark"), quick_files=True) as session:
        yield session


@pytest.fixture
def tables(spark: SparkSession, broker: brokers.Broker) -> Tables:
    return Tables(spark, broker.bootstrap, READER_DEFAULTS)


@pytest.fixture
def restartable(spark: SparkSession, restartable_broker: brokers.RestartableBroker) -> Tables:
    """The topics of the restartable broker."""
    return Tables(spark, restartable_broker.bootstrap, READER_DEFAULTS)


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes a name that no other test has."""
    test = re.sub(r"[^a-z0-9_]", "", str(request.node.originalname))[:80]

    def name(what: str) -> str:
        return f"{test}-{what}-{next(_numbers)}"

    return name


@pytest.fixture
def new_topic(broker: brokers.Broker, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic on the shared broker: `new_topic(partitions=3, config={"max.message.bytes": "100"})`."""

    def create(*, name: str | None = None, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = name or unique("topic")
        topics.create(broker.bootstrap, name, partitions=partitions, config=config)
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """A topic of one partition."""
    return new_topic()
