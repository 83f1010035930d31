"""Groups for tests that are about something else."""

from __future__ import annotations

from itertools import count
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from testkit.basics.waiting import eventually
from testkit.raw import configs, nodes, topics
from testkit.raw.client import RawClient

CLASSIC, CONSUMER = "classic", "consumer"
PROTOCOLS = (CLASSIC, CONSUMER)
"""The protocols of members: JoinGroup and its relatives, or ConsumerGroupHeartbeat (KIP-848).

confluent-kafka and the Java consumer have both; kafka-python and aiokafka only the classic one.
"""

# Enough that each partition of the offsets topic has some.
_SOME = [f"wait-until-served-{number}" for number in range(24)]
_NOT_SERVED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)


def session(bootstrap: str, group: str, protocol: str, timeout_ms: int) -> dict[str, Any]:
    """Settings for members of librdkafka whose sessions are so long.

    With the consumer protocol, that is a configuration of the group, which this changes.
    """
    if protocol == CLASSIC:
        return {"group.id": group, "group.protocol": protocol, "session.timeout.ms": timeout_ms}
    configure(bootstrap, group, "consumer.session.timeout.ms", timeout_ms)
    return {"group.id": group, "group.protocol": protocol}


def configure(bootstrap: str, group: str, config: str, value: int | str) -> None:
    """Sets a configuration of a group, and returns when all brokers report the new value."""
    with RawClient(bootstrap) as client:
        configs.change(client, configs.GROUP, group, config, str(value))

    def has_value(client: RawClient) -> bool:
        return configs.described(client, configs.GROUP, group)[config].value == str(value)

    eventually(lambda: all(map(has_value, nodes.each(bootstrap))), f"{config} of {group} is {value}")


def name_coordinated_here(bootstrap: str, what: str) -> str:
    """Returns the name of a group that `nodes.NODE` coordinates: `what` and a number."""
    numbers = count()
    return nodes.name_coordinated_here(bootstrap, nodes.GROUP, lambda: f"{what}-{next(numbers)}")


def wait_until_served(bootstrap: str) -> None:
    """Returns when the coordinator of every group answers.

    Apache Kafka creates the offsets topic when the first client looks for a coordinator, and for some moments returns
    COORDINATOR_NOT_AVAILABLE. Most clients retry by themselves; some calls of some clients do not.
    """
    client = topics.admin(bootstrap)

    def served(group: str) -> bool:
        try:
            client.describe_consumer_groups([group], request_timeout=20.0)[group].result()
        except KafkaException as exception:
            return exception.args[0].code() not in _NOT_SERVED  # that there is no such group is an answer
        return True

    eventually(lambda: all(served(group) for group in _SOME), "coordinators of groups")
