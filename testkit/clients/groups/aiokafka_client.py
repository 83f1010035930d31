"""Members of aiokafka, whose event loop has a thread of its own, so that the scenes can call it as any other client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import attrs
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition, errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from testkit.clients import aio
from testkit.clients.groups import python_members
from testkit.clients.groups.client import Committed, Evicted, Member, MemberConfig, Refused, Taken
from testkit.clients.members import MemberProcess, member_process

_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class _Listener(python_members.ChangeListener, ConsumerRebalanceListener):
    pass


@attrs.define(eq=False)
class _Offsets:
    consumer: AIOKafkaConsumer
    loop: aio.LoopInThread
    bootstrap: str
    group: str

    def commit_offsets(self, topic: str, offsets: Mapping[int, Committed]) -> None:
        wanted = {
            TopicPartition(topic, partition): OffsetAndMetadata(it.offset, it.metadata)
            for partition, it in offsets.items()
        }
        try:
            self.loop.run(self.consumer.commit(wanted))
        except errors.CommitFailedError as error:
            raise Evicted from error
        except errors.BrokerResponseError as error:
            raise Refused(error.errno) from error

    def committed(self, topic: str, partition: int) -> Committed | None:
        return self.loop.run(self._committed(TopicPartition(topic, partition)))

    async def _committed(self, partition: TopicPartition) -> Committed | None:
        offset = await self.consumer.committed(partition)
        if offset is None:
            return None
        # The consumer keeps the metadata to itself.
        async with aio.administering(self.bootstrap) as admin:
            found = (await admin.list_consumer_group_offsets(self.group))[partition]
        assert found.offset == offset
        return Committed(offset, found.metadata)


@attrs.define(eq=False)
class _Member(_Offsets):
    way: str
    changes: list[tuple[str, list[int]]] = attrs.field(factory=list, init=False)

    @property
    def owned(self) -> list[int]:
        return aio.owned(self.consumer)

    @property
    def topics(self) -> set[str]:
        return {it.topic for it in self.consumer.assignment()}

    def subscribe(self, topic: str) -> None:
        self.loop.run(self._subscribe(topics=[topic]))

    def subscribe_to_pattern(self, pattern: str) -> None:
        self.loop.run(self._subscribe(pattern=pattern))

    async def _subscribe(self, **to: Any) -> None:
        self.consumer.subscribe(**to, listener=_Listener(self.changes))

    def poll(self) -> list[Taken]:
        return self._poll(None)

    def _poll(self, most: int | None) -> list[Taken]:
        try:
            batches = self.loop.run(self.consumer.getmany(timeout_ms=50, max_records=most))
        except errors.BrokerResponseError as error:
            raise Refused(error.errno) from error
        return python_members.records_of(batches)

    def take(self, count: int) -> list[Taken]:
        return python_members.take(self._poll, count)

    def commit(self) -> None:
        if self.way == "sync":
            self.loop.run(self.consumer.commit())

    def close(self) -> None:
        self.loop.run(self.consumer.stop())


@attrs.frozen
class Aiokafka:
    _loop: aio.LoopInThread
    ways: Sequence[str] = ("sync", "at close")
    strategies: Sequence[str] = tuple(_ASSIGNORS)
    crash_strategies: Sequence[str | None] = (None,)
    bytes_after_metadata: int = 0

    @contextmanager
    def joining(self, bootstrap: str, config: MemberConfig) -> Iterator[_Member]:
        settings = {
            **self._settings(config),
            "group_id": config.group,
            "auto_offset_reset": config.reset,
            "enable_auto_commit": config.way == "at close",
        }
        if config.looks_often:
            settings["metadata_max_age_ms"] = 300
        with self._loop.entering(aio.consuming(bootstrap, **settings)) as consumer:
            yield _Member(consumer, self._loop, bootstrap, config.group, config.way)

    def _settings(self, config: MemberConfig) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        if config.strategy is not None:
            settings["partition_assignment_strategy"] = [_ASSIGNORS[config.strategy]]
        if config.session_ms is not None:
            settings["session_timeout_ms"] = config.session_ms
        if config.max_poll_ms is not None:
            settings["max_poll_interval_ms"] = config.max_poll_ms
        if config.client_id is not None:
            settings["client_id"] = config.client_id
        if config.instance is not None:
            settings["group_instance_id"] = config.instance
        return settings

    def in_a_process(self, bootstrap: str, topic: str, config: MemberConfig) -> AbstractContextManager[MemberProcess]:
        settings = self._settings(config)
        return member_process("aiokafka", bootstrap, config.group, topic, **settings)

    @contextmanager
    def assigned(self, bootstrap: str, group: str, topic: str, partitions: Sequence[int] = (0,)) -> Iterator[_Offsets]:
        client = aio.reading(bootstrap, topic, partitions=partitions, group_id=group)
        with self._loop.entering(client) as consumer:
            yield _Offsets(consumer, self._loop, bootstrap, group)

    def settle(self, members: Sequence[Member], partitions: int, *, most: int) -> list[list[int]]:
        consumers = [it.consumer for it in members if isinstance(it, _Member)]
        return self._loop.run(aio.settle(consumers, partitions, most=most))
