"""The topics as the coordinator of groups needs them: their ids, their partitions, and a version.

A group's epoch carries a hash of the topics that its members subscribe to, so that the next coordinator of the group
detects a change since then. Apache Kafka computes another hash. After a change of coordinator from one
to the other the hashes differ, and the group gets one assignment more.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Protocol

import attrs
from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import TopicSpec

_WORD: Final = 1 << 64


@attrs.frozen
class Topic:
    name: str
    topic_id: Uuid
    spec: TopicSpec
    digest: int = attrs.field(init=False, repr=False)
    """The hash of the topic, an unsigned integer of 64 bits."""

    @digest.default
    def _digest(self) -> int:
        racks = [sorted(of_partition) for of_partition in self.spec.racks]
        content = f"{self.name} {self.topic_id.hex()} {self.spec.partition_count} {racks}"
        return int.from_bytes(blake2b(content.encode(), digest_size=8).digest(), "big")


class Topics(Protocol):
    @property
    def version(self) -> int:
        """A number that changes whenever a topic was created or deleted, or its partitions or their racks changed."""

    def find(self, name: str) -> Topic | None: ...

    def name_of(self, topic_id: Uuid) -> str | None: ...

    def names(self) -> Iterable[str]: ...


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Returns the hash of those topics that exist, in any order: a signed integer of 64 bits, 0 for none."""
    total = sum(topic.digest for name in names if (topic := topics.find(name)) is not None) % _WORD
    return total - _WORD if total >= _WORD // 2 else total
