"""Making and removing topics for tests that are about something else."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

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

from testkit.basics.waiting import eventually
from testkit.raw import configs, nodes
from testkit.raw.client import RawClient

_REQUEST_TIMEOUT_S = 20.0


@functools.cache
def admin(bootstrap: str) -> AdminClient:
    """The client that the tests of a broker share."""
    return new_admin(bootstrap)


def new_admin(bootstrap: str) -> AdminClient:
    # librdkafka logs that a broker went away; in tests that stop it that is no news.
    quiet = logging.getLogger("testkit.admin")
    quiet.setLevel(logging.CRITICAL)
    return AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500}, logger=quiet)


def create(
    bootstrap: str,
    name: str,
    *,
    partitions: int = 1,
    config: dict[str, str] | None = None,
    replicas: Sequence[int] | None = None,
) -> None:
    """Creates a topic, and returns when all brokers have the leaders of its partitions (Apache Kafka answers before
    that).

    replicas: of each partition, by broker; the first of them leads.
    """
    where = {"replication_factor": -1} if replicas is None else {"replica_assignment": [list(replicas)] * partitions}
    new = NewTopic(name, num_partitions=partitions, config=config or {}, **where)
    admin(bootstrap).create_topics([new], request_timeout=_REQUEST_TIMEOUT_S)[name].result()
    nodes.wait_until_led(bootstrap, name, partitions)


def delete(bootstrap: str, name: str) -> None:
    """Deletes a topic, and returns when no broker has it any more."""
    admin(bootstrap).delete_topics([name], request_timeout=_REQUEST_TIMEOUT_S)[name].result()
    nodes.wait_until_gone(bootstrap, name)


def grow(bootstrap: str, name: str, partitions: int) -> None:
    """Gives a topic more partitions, `partitions` in all."""
    grown = NewPartitions(name, partitions)
    admin(bootstrap).create_partitions([grown], request_timeout=_REQUEST_TIMEOUT_S)[name].result()
    nodes.wait_until_led(bootstrap, name, partitions)


def configure(bootstrap: str, name: str, config: dict[str, str]) -> None:
    """Sets configs of a topic, and returns when all brokers report the new values."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    wanted = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin(bootstrap).incremental_alter_configs([wanted], request_timeout=_REQUEST_TIMEOUT_S)[wanted].result()

    def has_config(client: RawClient) -> bool:
        found = configs.described(client, configs.TOPIC, name)
        return all(found[key].value == value for key, value in config.items())

    eventually(lambda: all(map(has_config, nodes.each(bootstrap))), f"{name} has {config}")


def delete_records(bootstrap: str, name: str, before: int) -> None:
    """Deletes the records of partition 0 below an offset."""
    partition = TopicPartition(name, 0, before)
    admin(bootstrap).delete_records([partition], request_timeout=_REQUEST_TIMEOUT_S)[partition].result()


def names(bootstrap: str) -> set[str]:
    """The topics that there are."""
    return nodes.topic_names(bootstrap)
