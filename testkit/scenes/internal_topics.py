"""Coordinators for tests that are about something else: the internal topics, as FindCoordinator creates them."""

from __future__ import annotations

from kwire.node.broker import Broker
from kwire.runtime.futures import at_once


def create_internal_topics(broker: Broker) -> None:
    """Creates `__consumer_offsets` and `__transaction_state` unless they exist."""
    at_once(broker.groups.runtime.topic.ensure())
    at_once(broker.transactions.runtime.topic.ensure())
