"""The pytest fixture `kwire_broker`. Installing kwire registers it through an entry point.

    def test_orders_are_published(kwire_broker):
        publish_order(bootstrap_servers=kwire_broker.address)

Use a marker to set Kafka settings for a test's broker: `@pytest.mark.kwire_settings({"num.partitions": "3"})`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kwire.testing import Broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kwire_settings(settings): Kafka settings for the broker of `kwire_broker`")


@pytest.fixture
def kwire_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A new broker for this test, with its data in memory. Clients connect to `.address`."""
    # Imported here so that test runs without the fixture do not import it.
    from kwire.testing import Broker

    marker = request.node.get_closest_marker("kwire_settings")
    with Broker(settings=marker.args[0] if marker else {}) as broker:
        yield broker
