"""Members of confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import attrs
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from testkit.basics.waiting import Deadline
from testkit.clients import confluent, confluent_groups
from testkit.clients.groups.client import GIVEN, TAKEN, Committed, Evicted, Member, MemberConfig, Refused, Taken
from testkit.clients.members import MemberProcess, member_process
from testkit.raw import groups

_EVICTED = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)


@attrs.define(eq=False)
class _Offsets:
    consumer: Consumer

    def commit_offsets(self, topic: str, offsets: Mapping[int, Committed]) -> None:
        wanted = [TopicPartition(topic, partition, it.offset, it.metadata) for partition, it in offsets.items()]
        try:
            self.consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            code = error.args[0].code()
            raise (Evicted() if code in _EVICTED else Refused(code)) from error

    def committed(self, topic: str, partition: int) -> Committed | None:
        (found,) = self.consumer.committed([TopicPartition(topic, partition)], timeout=confluent.CALL_TIMEOUT_S)
        return None if found.offset == OFFSET_INVALID else Committed(found.offset, found.metadata or "")


@attrs.define(eq=False)
class _Member(_Offsets):
    way: str
    answers: list[KafkaError | None]
    """The results of its commits."""
    changes: list[tuple[str, list[int]]] = attrs.field(factory=list, init=False)
    _last: Message | None = attrs.field(default=None, init=False)

    @property
    def owned(self) -> list[int]:
        return confluent.group_of(self.consumer)

    @property
    def topics(self) -> set[str]:
        return {it.topic for it in self.consumer.assignment()}

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: self._hear(GIVEN, partitions),
            on_revoke=lambda _, partitions: self._hear(TAKEN, partitions),
        )

    def _hear(self, what: str, partitions: list[TopicPartition]) -> None:
        self.changes.append((what, sorted(it.partition for it in partitions)))

    def subscribe_to_pattern(self, pattern: str) -> None:
        self.subscribe(pattern)

    def poll(self) -> list[Taken]:
        message = self.consumer.poll(0.05)
        if message is None:
            return []
        if (error := message.error()) is not None:
            raise Refused(error.code())
        self._last = message
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        return [Taken(partition, offset, message.value())]

    def take(self, count: int) -> list[Taken]:
        records: list[Taken] = []
        deadline = Deadline()
        while len(records) < count and deadline.not_over(f"{count} records; got {records}"):
            records += self.poll()
        return records

    def commit(self) -> None:
        match self.way:
            case "sync":
                self.consumer.commit(asynchronous=False)
            case "async":
                self.consumer.commit(asynchronous=True)
                self._wait_for_the_answer()
            case "message":
                self.consumer.commit(message=self._last, asynchronous=False)
            case "stored":
                self.consumer.store_offsets(self._last)
                self._wait_for_the_answer()

    def _wait_for_the_answer(self) -> None:
        deadline = Deadline()
        while not self.answers and deadline.not_over("the answer to the commit"):
            self.consumer.pause(self.consumer.assignment())
            self.consumer.poll(0.05)
        assert self.answers[0] is None

    def close(self) -> None:
        self.consumer.close()


@attrs.frozen
class Confluent:
    """Its members speak `protocol`."""

    protocol: str = groups.CLASSIC
    ways: Sequence[str] = ("sync", "async", "message", "stored", "at close")
    bytes_after_metadata: int = 1

    @property
    def strategies(self) -> Sequence[str]:
        """The strategies of the members, or of the coordinator."""
        return ("range", "roundrobin", "cooperative-sticky") if self._is_classic else ("uniform", "range")

    @property
    def crash_strategies(self) -> Sequence[str | None]:
        return self.strategies

    @property
    def cooperative(self) -> str:
        return "cooperative-sticky" if self._is_classic else "uniform"

    @property
    def _is_classic(self) -> bool:
        return self.protocol == groups.CLASSIC

    @contextmanager
    def joining(self, bootstrap: str, config: MemberConfig) -> Iterator[_Member]:
        answers: list[KafkaError | None] = []
        settings = {
            **self._settings(bootstrap, config),
            "auto.offset.reset": config.reset,
            "on_commit": lambda error, _: answers.append(error),
            "enable.auto.commit": config.way in ("stored", "at close"),
            "enable.auto.offset.store": config.way != "stored",
            "auto.commit.interval.ms": 100 if config.way == "stored" else 60_000,
        }
        if config.looks_often:
            settings["topic.metadata.refresh.interval.ms"] = 200
        with confluent.consuming(bootstrap, **settings) as consumer:
            try:
                yield _Member(consumer, config.way, answers)
            finally:
                if config.instance is None:
                    confluent.leave(consumer)

    def _settings(self, bootstrap: str, config: MemberConfig) -> dict[str, Any]:
        settings: dict[str, Any] = {"group.id": config.group, "group.protocol": self.protocol}
        if config.session_ms is not None:
            settings = groups.session(bootstrap, config.group, self.protocol, config.session_ms)
        if config.strategy is not None:
            name = "partition.assignment.strategy" if self._is_classic else "group.remote.assignor"
            settings[name] = config.strategy
        if config.client_id is not None:
            settings["client.id"] = config.client_id
        if config.instance is not None:
            settings["group.instance.id"] = config.instance
        if config.max_poll_ms is not None:
            settings["max.poll.interval.ms"] = config.max_poll_ms
        return settings

    def in_a_process(self, bootstrap: str, topic: str, config: MemberConfig) -> AbstractContextManager[MemberProcess]:
        settings = self._settings(bootstrap, config)
        return member_process("confluent", bootstrap, config.group, topic, **settings)

    @contextmanager
    def assigned(self, bootstrap: str, group: str, topic: str, partitions: Sequence[int] = (0,)) -> Iterator[_Offsets]:
        with confluent.consuming(bootstrap, **{"group.id": group}) as consumer:
            yield _Offsets(consumer)  # which needs no partitions for that

    def settle(self, members: Sequence[Member], partitions: int, *, most: int) -> list[list[int]]:
        consumers = [it.consumer for it in members if isinstance(it, _Member)]
        return confluent_groups.settle(consumers, partitions, most=most)
