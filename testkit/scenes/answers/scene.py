"""A broker that gets requests of every kind, in its own process and without sockets.

It has two topics, a group of each kind, a transactional id and a delegation token. Of two other brokers, one leads a
topic and the other is fenced.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs
from kwire_protocol.internal.metadata_brokers import BrokerEndpoint, RegisterBrokerRecord
from kwire_protocol.internal.metadata_security import DelegationTokenRecord
from kwire_protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from kwire_protocol.wire import Reader, Writer
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.handlers.apis import APIS, Api, served_versions
from kwire.handlers.context import CloseAfterResponse, CloseConnection, Context
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.metadata.records import MetadataRecord
from kwire.node.broker import Broker
from kwire.runtime.futures import Future, at_once
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.principal import Principal, Requester
from testkit.metadata.harness import FakeClock
from testkit.scenes.answers.requests import CONSUMER, ELSEWHERE, OWNER, RESPONSES, SHARE, STREAMS, TOPIC, Named, usual
from testkit.scenes.folder_scene import append
from testkit.scenes.internal_topics import create_internal_topics

MOST_WAITS: Final = 20
"""The number of times that a handler's wait times out. One that continues to wait has no answer yet."""

SOMEBODY: Final = Requester(Principal("User", "somebody"), "host")
SETTINGS: Final = (
    "delegation.token.secret.key=secret-key",
    "transaction.two.phase.commit.enable=true",
    "unstable.api.versions.enable=true",
    "broker.rack=here",
    "group.streams.topology.description.plugin.class=org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
    "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
OTHER, FENCED = 2, 3
"""The other brokers."""


ELSEWHERE_ID: Final = b"elsewhere-16byte"
TOKEN: Final = DelegationTokenRecord(
    f"User:{OWNER}", f"User:{OWNER}", ["User:somebody"], 1, 1 << 62, 1 << 62, "token-id"
)


@attrs.define
class _Clock(FakeClock):
    """Its ids differ in the bytes that the id of a fetch session is made of, too."""

    def uuid(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(4, "big") * 4


@attrs.define
class Refuser:
    """An authorizer that allows everything but some operations, for resources of some types."""

    refused: frozenset[tuple[Operation, ResourceType]] | None = frozenset()
    """None: all."""
    checked: set[tuple[Operation, ResourceType]] = attrs.field(factory=set)
    allows_all: bool = False

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self.allows_any(requester, operation, resource_type)

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        self.checked.add((operation, resource_type))
        return self.refused is not None and (operation, resource_type) not in self.refused

    def granted(self, requester: Requester, operation: Operation) -> frozenset[str | bytes]:
        return frozenset()

    def grant(self, requester: Requester, operation: Operation, topic: str | bytes) -> None:
        """Does nothing, so that each check is made."""


@attrs.define(eq=False)
class Scene:
    broker: Broker
    clock: FakeClock
    named: Named

    def send(self, api: Api, version: int, request: Any) -> Any:
        """Returns the decoded answer; None if there is none (yet), or if the connection is closed."""
        handle = api.handler(self.broker)
        sent = Writer()
        request.write(sent, version)
        # As in a receive buffer, whose records are written into.
        received = type(request).read(Reader(bytearray(sent.getvalue())), version)
        context = Context(
            "host",
            "127.0.0.1",
            9092,
            served_versions=served_versions(unstable=True),
            api_key=api.key,
            api_version=version,
            requester=SOMEBODY,
        )
        try:
            answer = self._driven(handle(received, context))
        except CloseAfterResponse as closing:
            answer = closing.response
        except CloseConnection:
            return None
        if answer is None:
            return None
        return RESPONSES[api.key].cls.read(Reader(written(answer, version)), version)

    def _driven(self, answer: Any) -> Any:
        if not isinstance(answer, Coroutine):
            return answer
        try:
            for _ in range(MOST_WAITS):
                future: Future[Any] = answer.send(None)
                if future.timeout_s == math.inf:
                    return None
                self.clock.time_ms += math.ceil(future.timeout_s * 1000)
                if not future.is_set:
                    future.give_up()
        except StopIteration as stop:
            return stop.value
        finally:
            answer.close()
        return None


def written(answer: Any, version: int) -> bytes:
    writer = Writer()
    answer.write(writer, version)
    pieces: list[Any] = list(writer.pieces())
    return b"".join(it.read() if hasattr(it, "read") else bytes(it) for it in pieces)


@contextmanager
def opened() -> Iterator[Scene]:
    clock = _Clock()
    broker = Broker.open(load_config(settings=SETTINGS), MemoryDisk(), clock)
    records: list[MetadataRecord] = [
        TOKEN,
        *(
            RegisterBrokerRecord(
                broker_id=it,
                incarnation_id=bytes([it]) * 16,
                end_points=[BrokerEndpoint("PLAINTEXT", "other", 9092)],
                rack="there",
                fenced=it == FENCED,
                log_dirs=[bytes([it]) * 16],
            )
            for it in (OTHER, FENCED)
        ),
        TopicRecord(ELSEWHERE, ELSEWHERE_ID),
        PartitionRecord(
            0,
            ELSEWHERE_ID,
            replicas=[OTHER],
            isr=[OTHER],
            leader=OTHER,
            leader_epoch=3,
            partition_epoch=3,
            directories=[bytes([OTHER]) * 16],
        ),
    ]
    # Before there are other brokers, so that this one is the coordinator.
    create_internal_topics(broker)
    at_once(broker.share_state.runtime.topic.ensure())
    at_once(broker.metadata.change(lambda _: (records, None)))
    at_once(broker.metadata.change(auto_create_topic, TOPIC))
    append(broker.partitions.find(TOPIC, 0), b"value")
    named = Named(broker.metadata.image.topics[TOPIC].topic_id, 0, b"")
    scene = Scene(broker, clock, named)
    for kind in (CONSUMER, SHARE, STREAMS):
        api = next(it for it in APIS.values() if it.name == f"{kind}_group_heartbeat")
        request = usual(api, api.versions[-1], named)
        request.group_id = kind
        assert scene.send(api, api.versions[-1], request).error_code == 0
    yield scene
    broker.close()
