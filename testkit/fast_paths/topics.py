"""The topics of a story: each has a reason why some of its requests have no fast path, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.names.topic_names import CONSUMER_OFFSETS
from testkit.fast_paths.twins import Twins
from testkit.raw.client import request_frame

ADMIN_HOST: Final = "127.0.0.9"
PARTITIONS: Final = 2

CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {},
    "busy": {},
    "small": {"max.message.bytes": "300", "segment.bytes": "2000000", "index.interval.bytes": "200"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "squeezed": {"compression.type": "gzip"},
    "punctual": {"message.timestamp.before.max.ms": "100000", "message.timestamp.after.max.ms": "5000"},
    "flushed": {"flush.messages": "1"},
    "timed": {"flush.ms": "1000"},
}
NAMES: Final = (*CONFIGS, "unknown", CONSUMER_OFFSETS)
"""The topics that requests name."""
BUSIEST: Final = ("plain", 0)
"""The partition that most of them name."""


def create(twins: Twins, name: str) -> None:
    configs = [CreatableTopicConfig(key, value) for key, value in CONFIGS[name].items()]
    request = CreateTopicsRequest([CreatableTopic(name, PARTITIONS, 1, configs=configs)], 1000)
    twins.send(ADMIN_HOST, request_frame(request, 7))


def id_of(twins: Twins, name: str) -> Uuid:
    found = twins.plain.broker.metadata.image.topics.get(name)
    return NULL_UUID if found is None else found.topic_id
