"""Making and removing topics for tests that are about something else."""

from __future__ import annotations

import functools
import logging

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from .waiting import eventually

_REQUEST_TIMEOUT_S = 20.0


@functools.cache
def admin(bootstrap: str) -> AdminClient:
    """The client that the tests of a broker share."""
    return new_admin(bootstrap)


def new_admin(bootstrap: str) -> AdminClient:
    # librdkafka logs that a broker went away; in tests that stop it that is no news.
    quiet = logging.getLogger("compat_tests.admin")
    quiet.setLevel(logging.CRITICAL)
    return AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500}, logger=quiet)


def create(bootstrap: str, name: str, *, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    """Creates a topic, and returns when the broker leads all its partitions (Apache Kafka answers before that)."""
    client = admin(bootstrap)
    new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=config or {})
    client.create_topics([new], request_timeout=_REQUEST_TIMEOUT_S)[name].result()
    eventually(lambda: _led(client, name) == partitions, f"{name} has {partitions} partitions")


def delete(bootstrap: str, name: str) -> None:
    """Deletes a topic, and returns when the broker no longer knows it."""
    client = admin(bootstrap)
    client.delete_topics([name], request_timeout=_REQUEST_TIMEOUT_S)[name].result()
    eventually(lambda: name not in names(bootstrap), f"{name} is gone")


def grow(bootstrap: str, name: str, partitions: int) -> None:
    """Gives a topic more partitions, `partitions` in all."""
    client = admin(bootstrap)
    client.create_partitions([NewPartitions(name, partitions)], request_timeout=_REQUEST_TIMEOUT_S)[name].result()
    eventually(lambda: _led(client, name) == partitions, f"{name} has {partitions} partitions")


def configure(bootstrap: str, name: str, config: dict[str, str]) -> None:
    """Sets configs of a topic, and returns when the broker tells the new values."""
    client = admin(bootstrap)
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    wanted = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    client.incremental_alter_configs([wanted], request_timeout=_REQUEST_TIMEOUT_S)[wanted].result()

    def told() -> bool:
        asked = ConfigResource(ResourceType.TOPIC, name)
        found = client.describe_configs([asked], request_timeout=_REQUEST_TIMEOUT_S)[asked].result()
        return all(found[key].value == value for key, value in config.items())

    eventually(told, f"{name} has {config}")


def delete_records(bootstrap: str, name: str, before: int) -> None:
    """Deletes the records of partition 0 below an offset."""
    partition = TopicPartition(name, 0, before)
    admin(bootstrap).delete_records([partition], request_timeout=_REQUEST_TIMEOUT_S)[partition].result()


def names(bootstrap: str) -> set[str]:
    """The topics that there are."""
    return set(admin(bootstrap).list_topics(timeout=_REQUEST_TIMEOUT_S).topics)


def _led(client: AdminClient, name: str) -> int:
    found = client.list_topics(timeout=_REQUEST_TIMEOUT_S).topics.get(name)
    return sum(partition.leader >= 0 for partition in found.partitions.values()) if found else 0
