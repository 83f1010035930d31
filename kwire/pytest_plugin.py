"""The pytest fixtures `kwire_broker` and `kwire_cluster`. Installing kwire registers them through an entry point.

    def test_orders_are_published(kwire_broker):
        publish_order(bootstrap_servers=kwire_broker.address)

`kwire_cluster` is a cluster of three brokers, which a test may kill, pause and restart.

Use a marker to set Kafka settings for a test's brokers: `@pytest.mark.kwire_settings({"num.partitions": "3"})`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kwire.testing import Broker, Cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kwire_settings(settings): Kafka settings of the test's brokers")


@pytest.fixture
def kwire_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A new broker for this test, with its data in memory. Clients connect to `.address`."""
    # Imported here so that test runs without the fixture do not import it.
    from kwire.testing import Broker

    with Broker(settings=_settings(request)) as broker:
        yield broker


@pytest.fixture
def kwire_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A new cluster of three brokers for this test. Clients connect to `.bootstrap_servers`."""
    from kwire.testing import Cluster

    with Cluster(3, settings=_settings(request)) as cluster:
        yield cluster


def _settings(request: pytest.FixtureRequest) -> dict[str, str]:
    marker = request.node.get_closest_marker("kwire_settings")
    return marker.args[0] if marker else {}
