"""The state that the two threads of a mirror pass to each other, the one of the batches and the one of the upkeep.

Neither reads the other's state. Values that do not change go from one to the other, and the newest one is enough:

    partitions   batches -> upkeep   positions and offset maps, for the offsets of groups
    terms        upkeep -> batches   origins and limits, by topic
    cycle        upkeep -> batches   ends the mirror at its next batch

The target's topics are changed by both, so the object that changes them is passed back and forth. The thread that has
it may change them; the other one waits. The upkeep hands over `terms` while it has the object. So the driver, once it
has the object, can take all earlier terms first, and its own are the newest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Generic, TypeVar

from kwire.client.cluster import TopicPartition
from kwire.pipeline.mirror.origins import Cycle
from kwire.pipeline.mirror.topic import MirroredPartition, Terms
from kwire.pipeline.mirror.topics import TargetTopics

T = TypeVar("T")


class Latest(Generic[T]):
    """A value for another thread. A newer value replaces one that was not taken."""

    def __init__(self) -> None:
        self._values: deque[T] = deque(maxlen=1)  # its append and its pop are atomic

    def put(self, value: T) -> None:
        self._values.append(value)

    def take(self) -> T | None:
        try:
            return self._values.pop()
        except IndexError:
            return None


class Handover:
    def __init__(self, target_topics: TargetTopics) -> None:
        self.partitions: Latest[Mapping[TopicPartition, MirroredPartition]] = Latest()
        self.terms: Latest[Mapping[str, Terms]] = Latest()
        self.cycle: Latest[Cycle] = Latest()
        self._target_topics: SimpleQueue[TargetTopics] = SimpleQueue()
        self._target_topics.put(target_topics)

    @contextmanager
    def target_topics(self) -> Iterator[TargetTopics]:
        """Waits for the object that changes the target's topics. The block has it alone."""
        it = self._target_topics.get()
        try:
            yield it
        finally:
            self._target_topics.put(it)
