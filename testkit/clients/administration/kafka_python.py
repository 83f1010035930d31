"""kafka-python, of either generation. Their admin clients have much in common, but few names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from kafka import TopicPartition, errors
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    ResourcePattern,
    ResourceType,
)

from testkit.clients import kafka_python
from testkit.clients.administration.client import Cluster, Config, Refused
from testkit.clients.groups.client import Committed

SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}
"""The third generation has words for them."""
READING = ("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, "t"))


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except errors.BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from error


def configs_of(admin: Any, kind: ConfigResourceType, name: str, *names: str) -> dict[str, Config]:
    """Returns the named configs, or else all."""
    resource = ConfigResource(kind, name, dict.fromkeys(names, "") or None)
    if is_second_generation(admin):
        (response,) = admin.describe_configs([resource])
        (entries,) = [found[4] for found in response.resources]
        return {config: Config(value, source) for config, value, _, source, *_ in entries}
    ((_, answer),) = admin.describe_configs([resource], config_filter="all")[kind.name.lower()].items()
    return {config: Config(it["value"], SOURCES[it["config_source"]]) for config, it in answer.items()}


def is_second_generation(admin: Any) -> bool:
    return hasattr(admin, "list_consumer_groups")


@attrs.frozen
class KafkaPythonAdmin:
    client: Any

    def create(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        with _refusing():
            self.client.create_topics([new], validate_only=validate_only)

    def delete(self, topic: str) -> None:
        with _refusing():
            self.client.delete_topics([topic])

    def grow(self, topic: str, partitions: int, *, validate_only: bool = False) -> None:
        with _refusing():
            self.client.create_partitions({topic: NewPartitions(partitions)}, validate_only=validate_only)

    def topics(self) -> set[str]:
        return set(self.client.list_topics())

    def partitions(self, topic: str) -> int:
        (found,) = self.client.describe_topics([topic])
        return len(found["partitions"])

    def configs(self, topic: str, *names: str) -> dict[str, Config]:
        return configs_of(self.client, ConfigResourceType.TOPIC, topic, *names)

    def alter(self, topic: str, name: str, value: str) -> None:
        self.client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])

    def cluster(self) -> Cluster:
        found = self.client.describe_cluster()
        addresses = {it.get("broker_id", it.get("node_id")): f"{it['host']}:{it['port']}" for it in found["brokers"]}
        return Cluster(found["cluster_id"], found["controller_id"], addresses)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        tp = TopicPartition(topic, partition)
        with _refusing():
            return int(self.client.delete_records({tp: before})[tp]["low_watermark"])

    def groups(self) -> set[str]:
        if is_second_generation(self.client):
            return {name for name, _ in self.client.list_consumer_groups()}
        return {it["group_id"] for it in self.client.list_groups()}

    def offsets(self, group: str) -> dict[tuple[str, int], Committed]:
        if is_second_generation(self.client):
            found = self.client.list_consumer_group_offsets(group)
        else:
            found = self.client.list_group_offsets(group)[group]
        return {(it.topic, it.partition): Committed(kept.offset, kept.metadata) for it, kept in found.items()}

    def delete_group(self, group: str) -> None:
        if is_second_generation(self.client):
            ((_, error),) = self.client.delete_consumer_groups([group])
        else:
            result = self.client.delete_groups([group])[group]
            error = errors.NoError if result == "OK" else getattr(errors, result)
        if error is not errors.NoError:
            raise Refused(error.errno)

    def create_acl(self) -> None:
        answer = self.client.create_acls([ACL(*READING)])
        for failed in answer["failed"]:
            assert not answer["succeeded"]
            raise Refused((failed[1] if isinstance(failed, tuple) else failed).errno)

    def delete_acls(self) -> None:
        ((_, matching, error),) = self.client.delete_acls([ACLFilter(*READING)])
        if error is not errors.NoError:
            assert matching == []
            raise Refused(error.errno)


@attrs.frozen
class KafkaPython:
    @contextmanager
    def administering(self, bootstrap: str) -> Iterator[KafkaPythonAdmin]:
        with kafka_python.administering(bootstrap) as client:
            yield KafkaPythonAdmin(client)
