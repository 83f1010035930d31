"""Members of kafka-python, of either generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ClassVar

import attrs
from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition, errors
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from testkit.clients import kafka_python, kafka_python_groups
from testkit.clients.groups import python_members
from testkit.clients.groups.client import Committed, Evicted, Member, MemberConfig, Refused, Taken
from testkit.clients.members import MemberProcess, member_process


class _Listener(python_members.ChangeListener, ConsumerRebalanceListener):
    pass


@attrs.define(eq=False)
class _Offsets:
    consumer: Any

    def commit_offsets(self, topic: str, offsets: Mapping[int, Committed]) -> None:
        wanted = {
            TopicPartition(topic, partition): OffsetAndMetadata(it.offset, it.metadata, -1)
            for partition, it in offsets.items()
        }
        try:
            self.consumer.commit(wanted)
        except errors.CommitFailedError as error:
            raise Evicted from error
        except errors.BrokerResponseError as error:
            raise Refused(error.errno) from error

    def committed(self, topic: str, partition: int) -> Committed | None:
        tp = TopicPartition(topic, partition)
        offset = self.consumer.committed(tp)
        if offset is None:
            return None
        found = self.consumer.committed(tp, metadata=True)
        assert found.offset == offset
        return Committed(offset, found.metadata)


@attrs.define(eq=False)
class _Member(_Offsets):
    way: str
    changes: list[tuple[str, list[int]]] = attrs.field(factory=list, init=False)

    @property
    def owned(self) -> list[int]:
        return kafka_python_groups.partitions_of(self.consumer)

    @property
    def topics(self) -> set[str]:
        return {it.topic for it in self.consumer.assignment()}

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic], listener=_Listener(self.changes))

    def subscribe_to_pattern(self, pattern: str) -> None:
        self.consumer.subscribe(pattern=pattern, listener=_Listener(self.changes))

    def poll(self) -> list[Taken]:
        return self._poll(kafka_python_groups.JOIN_WITHIN_MS, None)

    def _poll(self, timeout_ms: int, most: int | None) -> list[Taken]:
        try:
            batches = self.consumer.poll(timeout_ms=timeout_ms, max_records=most)
        except errors.BrokerResponseError as error:
            raise Refused(error.errno) from error
        return python_members.records_of(batches)

    def take(self, count: int) -> list[Taken]:
        return python_members.take(partial(self._poll, kafka_python.POLL_MS), count)

    def commit(self) -> None:
        match self.way:
            case "sync":
                self.consumer.commit()
            case "async":
                answers: list[Any] = []
                self.consumer.commit_async(callback=lambda _, answer: answers.append(answer))
                kafka_python.take_until(
                    self.consumer, lambda: bool(answers), [], "the answer to the commit", poll_ms=100
                )
                assert not isinstance(answers[0], Exception), answers

    def close(self) -> None:
        self.consumer.close()


@attrs.frozen
class KafkaPython:
    ways: Sequence[str] = ("sync", "async", "at close")
    crash_strategies: Sequence[str | None] = (None,)
    cooperative: str = "cooperative-sticky"
    """Version 2.2 does not have it."""
    bytes_after_metadata: int = 0
    assignors: ClassVar[dict[str, Any]] = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    @property
    def strategies(self) -> Sequence[str]:
        return tuple(self.assignors)

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
        with kafka_python.consuming(bootstrap, **settings) as consumer:
            yield _Member(consumer, config.way)

    def _settings(self, config: MemberConfig) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        if config.strategy is not None:
            settings["partition_assignment_strategy"] = [self.assignors[config.strategy]]
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
        return member_process("kafka-python", bootstrap, config.group, topic, **settings)

    @contextmanager
    def assigned(self, bootstrap: str, group: str, topic: str, partitions: Sequence[int] = (0,)) -> Iterator[_Offsets]:
        with kafka_python.reading(bootstrap, topic, partitions=partitions, group_id=group) as consumer:
            yield _Offsets(consumer)

    def settle(self, members: Sequence[Member], partitions: int, *, most: int) -> list[list[int]]:
        consumers = [it.consumer for it in members if isinstance(it, _Member)]
        return kafka_python_groups.settle(consumers, partitions, most=most)
