"""The partitions that have no leader. The controller logs them when they go offline, and when they are back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Self

import attrs
from kwire_protocol.wire import Uuid

from kwire.metadata.controller.partitions.states import PartitionState, partition_state
from kwire.metadata.image import Changes, MetadataImage

log = logging.getLogger(__name__)

MOST_NAMES: Final = 10
"""The maximum number of partitions in one log line."""


@attrs.define(eq=False)
class OfflinePartitions:
    _image: MetadataImage
    _offline: set[tuple[Uuid, int]]

    @classmethod
    def of(cls, image: MetadataImage) -> Self:
        found = {
            (topic.topic_id, index)
            for topic in image.topics.values()
            for index in range(len(topic.partitions))
            if partition_state(image, topic.topic_id, index) is PartitionState.OFFLINE
        }
        return cls(image, found)

    def follow(self, changes: Changes, *, should_log: bool) -> None:
        """Applies changes of the metadata, and logs new offline and online partitions if `should_log` is true."""
        for topic in changes.topics_deleted:
            self._offline.difference_update((topic.topic_id, index) for index in range(len(topic.partitions)))
        gone, back = [], []
        for topic, index in changes.partitions_changed:
            key = topic.topic_id, index
            is_offline = partition_state(self._image, *key) is PartitionState.OFFLINE
            if is_offline and key not in self._offline:
                self._offline.add(key)
                gone.append(f"{topic.name}-{index}")
            elif not is_offline and key in self._offline:
                self._offline.discard(key)
                back.append(f"{topic.name}-{index}")
        if should_log and gone:
            log.warning("offline, because no replica that may lead is in service: %s", _names(gone))
        if should_log and back:
            log.info("online again: %s", _names(back))


def _names(partitions: Sequence[str]) -> str:
    more = len(partitions) - MOST_NAMES
    return ", ".join(partitions[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
