"""aiokafka, whose event loop has a thread of its own. It can neither delete groups nor change ACLs."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from aiokafka import TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from testkit.clients import aio
from testkit.clients.administration.client import Cluster, Config, Refused
from testkit.clients.groups.client import Committed


def _check(answers: Iterable[tuple[Any, ...]]) -> None:
    """Each with a code at its second place."""
    for _, code, *_ in answers:
        if code:
            raise Refused(code)


@attrs.frozen
class _Admin:
    _client: AIOKafkaAdminClient
    _loop: aio.LoopInThread

    def _call(self, call: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._loop.run(call)
        except errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error

    def create(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        _check(self._call(self._client.create_topics([new], validate_only=validate_only)).topic_errors)

    def delete(self, topic: str) -> None:
        _check(self._call(self._client.delete_topics([topic])).topic_error_codes)

    def grow(self, topic: str, partitions: int, *, validate_only: bool = False) -> None:
        new = {topic: NewPartitions(partitions)}
        self._call(self._client.create_partitions(new, validate_only=validate_only))

    def topics(self) -> set[str]:
        return set(self._call(self._client.list_topics()))

    def partitions(self, topic: str) -> int:
        (found,) = self._call(self._client.describe_topics([topic]))
        return len(found["partitions"])

    def configs(self, topic: str, *names: str) -> dict[str, Config]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(names, "") or None)
        (response,) = self._call(self._client.describe_configs([resource]))
        ((code, _, _, _, entries),) = response.resources
        assert code == 0
        return {name: Config(value, source) for name, value, _, source, *_ in entries}

    def alter(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        (response,) = self._call(self._client.alter_configs([resource]))
        ((code, *_),) = response.resources
        assert code == 0

    def cluster(self) -> Cluster:
        found = self._call(self._client.describe_cluster())
        addresses = {it["node_id"]: f"{it['host']}:{it['port']}" for it in found["brokers"]}
        return Cluster(found["cluster_id"], found["controller_id"], addresses)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        tp = TopicPartition(topic, partition)
        return int(self._call(self._client.delete_records({tp: RecordsToDelete(before)}))[tp])

    def groups(self) -> set[str]:
        return {name for name, *_ in self._call(self._client.list_consumer_groups())}

    def offsets(self, group: str) -> dict[tuple[str, int], Committed]:
        found = self._call(self._client.list_consumer_group_offsets(group))
        return {(it.topic, it.partition): Committed(kept.offset, kept.metadata) for it, kept in found.items()}


@attrs.frozen
class Aiokafka:
    _loop: aio.LoopInThread

    @contextmanager
    def administering(self, bootstrap: str) -> Iterator[_Admin]:
        with self._loop.entering(aio.administering(bootstrap)) as client:
            yield _Admin(client, self._loop)
