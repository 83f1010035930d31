"""Coordinators for tests that are about something else: the internal topics, as FindCoordinator creates them."""

from __future__ import annotations

from kwire.broker import Broker


def create_internal_topics(broker: Broker) -> None:
    """Creates `__consumer_offsets` and `__transaction_state` unless they exist."""
    broker.groups.runtime.topic.ensure()
    broker.transactions.runtime.topic.ensure()
