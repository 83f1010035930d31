"""The topics of the metadata image, as groups see them (`topics.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import TopicSpec
from kwire.groups.topics import Topic
from kwire.metadata.image import Changes, TopicImage

if TYPE_CHECKING:
    from kwire.metadata.service import MetadataService


class MetadataTopics:
    """A `Topics`. It caches each topic until the topic changes."""

    def __init__(self, metadata: MetadataService) -> None:
        self._metadata = metadata
        self._topics: dict[str, Topic] = {}
        self._racks: Mapping[int, str] = self._racks_of_brokers()
        self.version = 0
        metadata.watch(self._changed)

    def find(self, name: str) -> Topic | None:
        topic = self._topics.get(name)
        if topic is None and (image := self._metadata.image.topics.get(name)) is not None:
            topic = self._topics[name] = Topic(name, image.topic_id, self._spec(image))
        return topic

    def name_of(self, topic_id: Uuid) -> str | None:
        image = self._metadata.image.topics_by_id.get(topic_id)
        return None if image is None else image.name

    def names(self) -> Iterable[str]:
        return self._metadata.image.topics

    def _spec(self, image: TopicImage) -> TopicSpec:
        if not self._racks:
            return TopicSpec(len(image.partitions))
        return TopicSpec(
            len(image.partitions),
            tuple(
                frozenset(self._racks[replica] for replica in partition.replicas if replica in self._racks)
                for partition in image.partitions
            ),
        )

    def _racks_of_brokers(self) -> Mapping[int, str]:
        brokers = self._metadata.image.brokers.values()
        return {broker.broker_id: broker.rack for broker in brokers if broker.rack is not None}

    def _changed(self, changes: Changes) -> None:
        changed = {topic.name for topic in (*changes.topics_created, *changes.topics_deleted)}
        changed |= {topic.name for topic, _ in changes.partitions_added}
        if changes.brokers and (racks := self._racks_of_brokers()) != self._racks:
            self._racks = racks
            changed |= self._topics.keys()
        if self._racks:
            # Without racks the placement of replicas does not matter.
            changed |= {topic.name for topic, _ in changes.partitions_changed if self._has_moved(topic)}
        if changed:
            self.version += 1
            for name in changed:
                self._topics.pop(name, None)

    def _has_moved(self, image: TopicImage) -> bool:
        known = self._topics.get(image.name)
        return known is not None and known.spec != self._spec(image)
