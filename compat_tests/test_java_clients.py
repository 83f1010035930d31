"""Kafka's own Java clients: producer, consumer and admin client (the scenarios are in java/ClientScenarios.java)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .brokers import Broker
from .java_host import JavaHost

SCENARIOS = [
    "everyCodecAndAcknowledgement",
    "idempotenceByDefault",
    "tooLargeRecords",
    "invalidNames",
    "seeksByOffsetAndTime",
    "sessionsOverManyPolls",
    "cooperativeGroup",
    "commitsAndTheirMetadata",
    "staticMembers",
    "topicsThroughTheAdminClient",
    "configsThroughTheAdminClient",
    "groupsThroughTheAdminClient",
    "recordsDeletedAndOffsetsListed",
    "topicMadeAgainUnderAConsumer",
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_java_clients_pass_a_scenario(
    broker: Broker, java: JavaHost, unique: Callable[[str], str], scenario: str
) -> None:
    ended = java.succeed("ClientScenarios", scenario, broker.bootstrap, unique(scenario))
    assert ended.lines[-1] == "passed"
