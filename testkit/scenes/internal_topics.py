"""Coordinators for tests that are about something else: the internal topics, as FindCoordinator creates them."""

from __future__ import annotations

from typing import Final

from kwire.names.topic_names import INTERNAL_TOPICS
from kwire.node.broker import Broker
from kwire.runtime.futures import at_once

FEW_PARTITIONS: Final = tuple(f"{it.num_partitions}=3" for it in INTERNAL_TOPICS.values())
"""Settings of a broker: three partitions of each internal topic instead of 50, which take 20 ms to create."""


def create_internal_topics(broker: Broker) -> None:
    """Creates `__consumer_offsets` and `__transaction_state` unless they exist."""
    at_once(broker.groups.runtime.topic.ensure())
    at_once(broker.transactions.runtime.topic.ensure())
