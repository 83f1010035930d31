"""The pytest fixture `kwire_broker`, offered by an entry point: installing kwire is enough to use it.

    def test_orders_are_published(kwire_broker):
        publish_order(bootstrap_servers=kwire_broker.address)

Kafka settings for a test's broker come from a marker: `@pytest.mark.kwire_settings({"num.partitions": "3"})`.
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
    """A broker of this test's own, with its data in memory; `.address` is its bootstrap address."""
    # Imported here, so that a test run that does not use the fixture does not pay for it.
    from kwire.testing import Broker

    marker = request.node.get_closest_marker("kwire_settings")
    with Broker(settings=marker.args[0] if marker else {}) as broker:
        yield broker
