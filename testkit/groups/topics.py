"""Topics of which a test has control: a fake `kwire.groups.topics.Topics`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import TopicSpec
from kwire.groups.topics import Topic


def topic_id(name: str, life: int = 0) -> Uuid:
    """The id of a topic; a topic that is created again has another one in its next life."""
    return blake2b(f"{name} {life}".encode(), digest_size=16).digest()


class FakeTopics:
    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self._topics: dict[str, Topic] = {}
        self._lives: dict[str, int] = {}
        for name, count in partition_counts.items():
            self.create(name, count)

    def create(self, name: str, partition_count: int, racks: Sequence[frozenset[str]] = ()) -> Uuid:
        """Also adds partitions to a topic that exists."""
        known = self._topics.get(name)
        uuid = topic_id(name, self._lives.get(name, 0)) if known is None else known.topic_id
        self._topics[name] = Topic(name, uuid, TopicSpec(partition_count, tuple(racks)))
        self.version += 1
        return uuid

    def delete(self, name: str) -> None:
        del self._topics[name]
        self._lives[name] = self._lives.get(name, 0) + 1
        self.version += 1

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def name_of(self, uuid: Uuid) -> str | None:
        return next((topic.name for topic in self._topics.values() if topic.topic_id == uuid), None)

    def names(self) -> Iterable[str]:
        return list(self._topics)
