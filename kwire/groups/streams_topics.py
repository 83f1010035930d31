"""The internal topics of streams groups, which the broker creates in parallel to the heartbeat that misses them.

Each of a group's members finds the same topics missing. There is one request at a time to create a topic, and none for
a while after a failure; meanwhile members get the error. Kafka's
`AutoTopicCreationManager.createStreamsInternalTopics`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

from kwire.runtime.futures import Future, drive
from kwire.runtime.loop import Loop

log = logging.getLogger(__name__)

MAX_FAILURES: Final = 1_000
"""The maximum number of failures that are kept; Kafka's constant."""

_DEFAULT: Final = -1

CreateTopics = Callable[[CreateTopicsRequest], Coroutine[Future[Any], None, CreateTopicsResponse]]


@attrs.frozen
class InternalTopic:
    """A topic that the broker creates. `partitions` is 0 if the topology leaves the number to the broker.

    `replication_factor` is 0 for the broker's default.
    """

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Answer:
    """The response to a heartbeat, and the internal topics that the broker has to create now."""

    response: StreamsGroupHeartbeatResponse
    to_create: tuple[InternalTopic, ...] = ()


@attrs.frozen
class _Failure:
    until_ms: int
    """The monotonic clock, in milliseconds."""
    reason: str


@attrs.define(eq=False)
class InternalTopicCreation:
    """`now_ms` returns the monotonic clock, in milliseconds."""

    create_topics: CreateTopics
    loop: Loop
    now_ms: Callable[[], int]
    _under_way: set[str] = attrs.field(init=False, factory=set)
    _failures: dict[str, _Failure] = attrs.field(init=False, factory=dict)
    """The failures by topic, the oldest first."""

    def begin(self, topics: Iterable[InternalTopic], *, retry_after_ms: int) -> None:
        """Creates the topics, except those that are being created, or recently could not be created."""
        now_ms = self.now_ms()
        to_create = [it for it in topics if it.name not in self._under_way and self._failure(it.name, now_ms) is None]
        if to_create:
            self._under_way.update(it.name for it in to_create)
            drive(self._create(to_create, retry_after_ms))

    def failures(self, names: Collection[str]) -> Mapping[str, str]:
        """Returns the reasons of recent failures by topic name."""
        now_ms = self.now_ms()
        found = {name: self._failure(name, now_ms) for name in names}
        return {name: failure.reason for name, failure in found.items() if failure is not None}

    def _failure(self, name: str, now_ms: int) -> _Failure | None:
        failure = self._failures.get(name)
        if failure is not None and failure.until_ms <= now_ms:
            del self._failures[name]
            return None
        return failure

    async def _create(self, topics: list[InternalTopic], retry_after_ms: int) -> None:
        await self.loop.next_turn()
        errors: dict[str, tuple[int, str | None]] = {}
        try:
            response = await self.create_topics(CreateTopicsRequest([_creatable(it) for it in topics]))
            errors = {it.name: (it.error_code, it.error_message) for it in response.topics}
        except KafkaError as error:
            errors = dict.fromkeys((it.name for it in topics), (error.code, error.message))
        finally:
            self._under_way.difference_update(it.name for it in topics)
        for name, (code, message) in errors.items():
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._failures.pop(name, None)
                continue
            reason = message or ErrorCode(code).name
            log.warning("topic %a of a streams group is not created: %s", name, reason)
            self._remember(name, _Failure(self.now_ms() + retry_after_ms, reason))

    def _remember(self, name: str, failure: _Failure) -> None:
        self._failures.pop(name, None)
        if len(self._failures) >= MAX_FAILURES:
            del self._failures[next(iter(self._failures))]
        self._failures[name] = failure


def _creatable(topic: InternalTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(name, value) for name, value in topic.configs.items()]
    return CreatableTopic(topic.name, topic.partitions, topic.replication_factor or _DEFAULT, configs=configs)
