"""Kafka's own Java clients: producer, consumer and admin client (the scenarios are in java/*Scenarios.java)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testkit.java.java_host import JavaHost
from testkit.raw import groups
from testkit.servers.brokers import Broker

SCENARIOS = {
    "ClientScenarios": [
        "everyCodecAndAcknowledgement",
        "idempotenceByDefault",
        "tooLargeRecords",
        "seeksByOffsetAndTime",
        "sessionsOverManyPolls",
        "cooperativeGroup",
        "commitsAndTheirMetadata",
        "staticMembers",
    ],
    "AdminScenarios": [
        "topicsThroughTheAdminClient",
        "configsThroughTheAdminClient",
        "groupsThroughTheAdminClient",
        "recordsDeletedAndOffsetsListed",
        "topicMadeAgainUnderAConsumer",
        "invalidNames",
    ],
    "ConsumerGroupScenarios": [
        "subscriptionByPattern",
        "instancesInUse",
        "waysToClose",
        "assignorsOfTheCoordinator",
        "changesOfTheSubscription",
        "partitionsAdded",
        "subscribedTopicMadeAgain",
        "tooLongBetweenPolls",
        "membersRemovedByAnAdministrator",
        "groupTypesAndStates",
    ],
}

OF_GROUPS = ["cooperativeGroup", "commitsAndTheirMetadata", "staticMembers", "groupsThroughTheAdminClient"]


@pytest.mark.parametrize(("program", "scenario"), [(program, it) for program, its in SCENARIOS.items() for it in its])
def test_the_java_clients_pass_a_scenario(
    broker: Broker, java: JavaHost, unique: Callable[[str], str], program: str, scenario: str
) -> None:
    ended = java.succeed(program, scenario, broker.bootstrap, unique(scenario))
    assert ended.lines[-1] == "passed"


@pytest.mark.parametrize("scenario", OF_GROUPS)
def test_the_java_clients_pass_a_scenario_with_the_consumer_protocol(
    broker: Broker, java: JavaHost, unique: Callable[[str], str], scenario: str
) -> None:
    (program,) = [program for program, its in SCENARIOS.items() if scenario in its]
    ended = java.succeed(program, scenario, broker.bootstrap, unique(scenario), groups.CONSUMER)
    assert ended.lines[-1] == "passed"
