"""Groups for tests that are about something else."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from . import topics
from .waiting import eventually

# Enough that each partition of the offsets topic has some.
_SOME = [f"wait-until-served-{number}" for number in range(24)]
_NOT_SERVED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)


def wait_until_served(bootstrap: str) -> None:
    """Returns when the coordinator of every group answers.

    Apache Kafka makes the offsets topic when the first client asks for a coordinator, and for some moments answers that
    nobody is one. Most clients ask again by themselves; some calls of some clients do not.
    """
    client = topics.admin(bootstrap)

    def served(group: str) -> bool:
        try:
            client.describe_consumer_groups([group], request_timeout=20.0)[group].result()
        except KafkaException as exception:
            return exception.args[0].code() not in _NOT_SERVED  # that there is no such group is an answer
        return True

    eventually(lambda: all(served(group) for group in _SOME), "coordinators of groups")
