"""Transactions of Kafka's own Java clients (the scenarios are in java/TransactionScenarios.java)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testkit.java.java_host import JavaHost
from testkit.raw import groups
from testkit.servers.brokers import Broker, RestartableBroker

PROGRAM = "TransactionScenarios"
SCENARIOS = [
    "commitsAndAbortsInTurn",
    "emptyTransactions",
    "openTransactionsHoldBackReadCommitted",
    "manyIdsAtOnce",
    "offsetsInATransaction",
    "offsetsOfAStrangerAreRefused",
    "zombiesAreFenced",
    "anAdminFencesProducers",
    "slowTransactionsTimeOut",
    "transactionsThroughTheAdminClient",
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_java_clients_pass_a_scenario(
    broker: Broker, java: JavaHost, unique: Callable[[str], str], scenario: str
) -> None:
    ended = java.succeed(PROGRAM, scenario, broker.bootstrap, unique(scenario))
    assert ended.lines[-1] == "passed"


@pytest.mark.parametrize("scenario", ["offsetsInATransaction", "offsetsOfAStrangerAreRefused"])
def test_the_java_clients_pass_a_scenario_with_the_consumer_protocol(
    broker: Broker, java: JavaHost, unique: Callable[[str], str], scenario: str
) -> None:
    ended = java.succeed(PROGRAM, scenario, broker.bootstrap, unique(scenario), groups.CONSUMER)
    assert ended.lines[-1] == "passed"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_transactions_at_each_step_are_finished_after_a_restart(
    restartable_broker: RestartableBroker, java: JavaHost, unique: Callable[[str], str], how: str
) -> None:
    broker, name = restartable_broker, unique(how)
    java.succeed(PROGRAM, "beforeARestart", broker.bootstrap, name)
    if how == "stop":
        broker.restart()
    else:
        broker.kill_and_restart()
    ended = java.succeed(PROGRAM, "afterARestart", broker.bootstrap, name)
    assert ended.lines[-1] == "passed"
