"""The work of a mirror that is due even without new records, parallel to the batches.

It commits groups' offsets, follows partitions and configurations, and looks for a loop of mirrors. `Upkeep` is that
work, `Duties` decides when, and `UpkeepThread` waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

from kwire.client.cluster import TopicPartition
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.groups import take_over
from kwire.pipeline.mirror.handover import Handover
from kwire.pipeline.mirror.origins import Cycle
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.start import both_clusters, origins_at
from kwire.pipeline.mirror.topic import MirroredPartition, Terms


@attrs.define(eq=False)
class Upkeep:
    """Its owner is the thread that does the work; before that thread starts and after it ended, the job's thread."""

    plan: MirrorPlan
    handover: Handover
    timeout_s: float
    cycle: Cycle | None = None
    """The loop that was found; it ends the mirror."""
    _partitions: Mapping[TopicPartition, MirroredPartition] = attrs.field(factory=dict)

    def commit_groups(self) -> None:
        """Commits the groups' offsets at the target. Raises PipelineError."""
        self._partitions = self.handover.partitions.take() or self._partitions
        if self.plan.groups is None or not self._partitions:
            return
        with both_clusters(self.plan, timeout_s=self.timeout_s) as (source, target):
            take_over(source, target, self.plan.groups, self._partitions)

    def follow_topics(self) -> None:
        """Follows partitions and configurations. Raises PipelineError; Cycle also ends the mirror at its next batch."""
        with (
            both_clusters(self.plan, timeout_s=self.timeout_s) as (source, target),
            self.handover.target_topics() as target_topics,
        ):
            sizes = target_topics.follow(source, target, self.plan.pairs)
            try:
                origins = origins_at(self.plan, source, target)
            except Cycle as error:
                self.cycle = error
                self.handover.cycle.put(error)
                raise
            self.handover.terms.put({topic: Terms(origins[topic], size) for topic, size in sizes.items()})


@attrs.define(eq=False)
class Duties:
    """Work that is due at intervals. An interval begins when the work before has ended.

    acts: each with its interval in seconds.
    """

    acts: Sequence[tuple[Callable[[], None], float]]
    warning: Callable[[str], None]
    monotonic: Callable[[], float] = time.monotonic
    _due_s: list[float] = attrs.field(init=False)
    _warned: str = ""

    def __attrs_post_init__(self) -> None:
        self._due_s = [self.monotonic() + interval_s for _, interval_s in self.acts]

    def wait_s(self) -> float:
        """The time until something is due."""
        return max(0.0, min(self._due_s) - self.monotonic())

    def work(self) -> None:
        """Does the work that is due."""
        for index, (act, interval_s) in enumerate(self.acts):
            if self.monotonic() >= self._due_s[index]:
                self._do(act)
                self._due_s[index] = self.monotonic() + interval_s

    def _do(self, act: Callable[[], None]) -> None:
        """An error is reported once, and the work is tried again the next time."""
        try:
            act()
            self._warned = ""
        except PipelineError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                self.warning(self._warned)


class UpkeepThread:
    """Does duties from its beginning until `stop`."""

    def __init__(self, duties: Duties) -> None:
        self._duties = duties
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kwire-mirror-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when the current work has finished."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(self._duties.wait_s()):
            self._duties.work()
