"""Share groups (KIP-932) with Kafka's own Java consumer (the scenarios are in java/ShareScenarios.java)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from testkit.basics.waiting import eventually
from testkit.clients.share_consumers import ended, make
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.servers.brokers import Broker, RestartableBroker

PROGRAM = "ShareScenarios"


@pytest.mark.parametrize(
    "scenario",
    [
        "acknowledgedOneByOne",
        "acknowledgedByThemselves",
        "givenBackOnClosing",
        "locksThatEnd",
        "renewals",
        "acquireModes",
        "deliveryLimit",
        "committedRecordsOnly",
        "tenConsumers",
    ],
)
def test_the_java_share_consumer_passes_a_scenario(
    broker: Broker, java: JavaHost, unique: Callable[[str], str], scenario: str
) -> None:
    result = java.succeed(PROGRAM, scenario, broker.bootstrap, unique(scenario))
    assert result.lines[-1] == "passed"


@pytest.mark.soak
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_java_share_consumers_continue_after_a_restart_in_mid_stream(
    restartable_broker: RestartableBroker, java: JavaHost, unique: Callable[[str], str], is_killed: bool
) -> None:
    broker, name = restartable_broker, unique("stream")
    topics.create(broker.bootstrap, name, partitions=2)
    make(broker.bootstrap, name)

    def restarted_in_time() -> None:
        eventually(lambda: ended(broker.bootstrap, name, name) >= 50, "some records are accepted")
        (broker.kill_and_restart if is_killed else broker.restart)()

    restart = threading.Thread(target=restarted_in_time)
    restart.start()
    try:
        assert java.succeed(PROGRAM, "restartInMidStream", broker.bootstrap, name).lines[-1] == "passed"
    finally:
        restart.join()
    assert [ended(broker.bootstrap, name, name, partition) for partition in (0, 1)] == [300, 300]
