"""A mirror's driver: it declares positions, plans each batch, and takes the tasks' results. Independent of Spark.

At its start it ends the open transactions of a killed run, reads the mirror's position, creates topics, and records
each partition's start and origins. From then on it has all positions and offset maps, and the tasks report their
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

import attrs

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.offsets import LATEST, list_offsets
from kwire.pipeline.clock import now_ms
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.delivery.parts import abort_orphans
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.handover import Handover
from kwire.pipeline.mirror.origins import Cycle
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.start import (
    JobStart,
    TopicStart,
    both_clusters,
    job_start,
    origins_at,
    reached,
    source_state,
    target_ids,
)
from kwire.pipeline.mirror.state import TOPIC_PREFIX, State, gap_values
from kwire.pipeline.mirror.task import MirrorTask, parse_result
from kwire.pipeline.mirror.topic import MirroredPartition, MirroredTopic, Terms
from kwire.pipeline.mirror.topics import batch_bytes
from kwire.pipeline.mirror.writing import Copied, OffsetRange, Writing, copy_range, declare

Ends = Mapping[str, Mapping[int, int]]
"""The end of a batch, by topic and partition: the next offset after it."""


@attrs.define(eq=False)
class Driver:
    """Its owner is the thread of the batches; while there are none, the job's thread, which starts them.

    run_id: the id of this run of the job; it distinguishes two mirrors of the same name.
    """

    plan: MirrorPlan
    run_id: str
    handover: Handover
    warning: Callable[[str], None]
    timeout_s: float
    topics: dict[str, MirroredTopic] = attrs.field(factory=dict)
    _writing: Writing | None = None

    @property
    def writing(self) -> Writing:
        assert self._writing is not None
        return self._writing

    def begin(self) -> None:
        """Prepares the first batch. Raises PipelineError, also if records were lost.

        May be called again when no batch is written.
        """
        with (
            both_clusters(self.plan, timeout_s=self.timeout_s) as (source, target),
            self.handover.target_topics() as target_topics,
        ):
            writing = self._writing = self._named(source, target)
            for topic in self.plan.topics:
                abort_orphans(target, writing.prefix(topic))
            start = job_start(self.plan, source, target)
            for known in self.topics.values():
                known.check_alone(start.stored, writing)
            CompactedTopic(target, writing.state_topic).make()
            target_topics.state_topic = writing.state_topic
            for topic, it in start.topics.items():
                target_topics.change(target, topic, it.target, it.changes, it.configs)
            self.topics = self._declare_topics(source, target, start)
            self.handover.terms.take()  # it is older than the start
            self._hand_over()

    def write(self, ends: Ends, copy: Callable[[MirrorTask], Iterable[str]]) -> dict[str, int]:
        """Writes a batch, and returns its number of records, by topic with new offsets. Raises PipelineError.

        copy: lets the tasks do their work with the batch's rows, and returns their results.
        """
        cycle = self.handover.cycle.take()
        if cycle is not None:
            raise cycle
        try:
            self._take_terms()
            with both_clusters(self.plan, timeout_s=self.timeout_s) as (source, target):
                for topic in ends:
                    state = source_state(self.plan, source, topic)
                    self.topics[topic].replace_state(state, self.plan.holder(self.writing.state_topic))
                ranges: dict[TopicPartition, OffsetRange] = {}
                for topic, offsets in ends.items():
                    self._declare_changes(source, target, self.topics[topic], offsets)
                    ranges |= self.topics[topic].ranges(offsets)
            return self._write(ranges, copy) if ranges else {}
        finally:
            self._hand_over()

    # At the start

    def _named(self, source: Cluster, target: Cluster) -> Writing:
        name = self.plan.named(source.cluster_id, target.cluster_id)
        return Writing(
            name=name,
            state_topic=TOPIC_PREFIX + name,
            run_id=self.run_id,
            exactly_once=self.plan.exactly_once,
            compression=self.plan.codec,
        )

    def _declare_topics(self, source: Cluster, target: Cluster, start: JobStart) -> dict[str, MirroredTopic]:
        """Declares each partition's start. Raises Cycle; then no new partition stays declared."""
        names = [it.target for it in start.topics.values()]
        ids, sizes = target_ids(target, names), batch_bytes(target, names)
        topics: dict[str, MirroredTopic] = {}
        new: list[bytes] = []
        for name, it in start.topics.items():
            topics[name] = topic = MirroredTopic(
                name=name,
                target=it.target,
                target_id=ids[it.target],
                state=it.state,
                terms=Terms(it.origins, sizes[it.target]),
                partitions=_stored_partitions(start.stored, name, it),
            )
            gaps = {gap.partition: gap_values(name, [gap]) for gap in it.begun.gaps}
            target_ends = list_offsets(target, it.target, LATEST)
            for position in topic.undeclared(it.begun.position.offsets, target_ends, self.writing):
                number = position.at.partition
                if number not in topic.partitions:
                    new.append(position.key)
                topic.declared(declare(target, self.writing, position, gaps.get(number), now_ms=now_ms))
            for gap in it.begun.gaps:
                self.warning(f"topic {name}: {gap} were deleted before they were mirrored")
        try:
            origins = origins_at(self.plan, source, target)
        except Cycle:
            # Nothing was written, and the declared origins would stop the other mirror too.
            CompactedTopic(target, self.writing.state_topic).write(dict.fromkeys(new), now_ms())
            raise
        for name, topic in topics.items():
            topic.terms = attrs.evolve(topic.terms, origins=origins[name])
        return topics

    # A batch

    def _take_terms(self) -> None:
        for topic, terms in (self.handover.terms.take() or {}).items():
            self.topics[topic].terms = terms

    def _hand_over(self) -> None:
        """Lets the upkeep have the positions."""
        partitions = chain.from_iterable(topic.partitions.values() for topic in self.topics.values())
        self.handover.partitions.put({it.position.at: it for it in partitions})

    def _declare_changes(self, source: Cluster, target: Cluster, topic: MirroredTopic, ends: Mapping[int, int]) -> None:
        """Adds the source's new partitions to the target, and declares their starts, and new origins."""
        offsets = topic.offsets
        new = {number: topic.state.starts[number] for number in ends if number not in offsets}
        target_ends: Mapping[int, int] = {}
        if new:
            with self.handover.target_topics() as target_topics:
                self._take_terms()  # before something newer is found here
                sizes = target_topics.follow(source, target, {topic.name: topic.target})
            topic.terms = attrs.evolve(topic.terms, batch_bytes=sizes[topic.name])
            target.forget_topic(topic.target)
            target_ends = list_offsets(target, topic.target, LATEST)
        for position in topic.undeclared({**offsets, **new}, target_ends, self.writing):
            topic.declared(declare(target, self.writing, position, now_ms=now_ms))

    def _write(
        self, ranges: Mapping[TopicPartition, OffsetRange], copy: Callable[[MirrorTask], Iterable[str]]
    ) -> dict[str, int]:
        task = MirrorTask(
            source=self.plan.source,
            target=self.plan.target,
            timeout_s=self.timeout_s,
            writing=self.writing,
            ranges=ranges,
            topic_ids={name: topic.state.topic_id for name, topic in self.topics.items()},
        )
        counts = dict.fromkeys((at.topic for at in ranges), 0)
        problem: PipelineError | None = None
        for text in copy(task):
            try:
                copied = parse_result(text)
            except PipelineError as error:  # the other tasks' results count nevertheless
                problem = problem or error
            else:
                counts[copied.position.at.topic] += copied.records
                self._take_note(copied)
        if problem is not None:
            raise problem
        left = [it for at, it in ranges.items() if self._partition(at).position.next < it.until]
        if left:  # only control records, or records that were compacted away
            with reached(self.plan.target, "--to", self.timeout_s) as target:
                for it in left:
                    self._take_note(copy_range(target, self.writing, it, (), now_ms=now_ms))
        return counts

    def _partition(self, at: TopicPartition) -> MirroredPartition:
        return self.topics[at.topic].partitions[at.partition]

    def _take_note(self, copied: Copied) -> None:
        at = copied.position.at
        retained_runs = None
        if copied.was_further:  # a task that was run again has written runs that it did not report
            with reached(self.plan.target, "--to", self.timeout_s) as target:
                retained_runs = State.read(CompactedTopic(target, self.writing.state_topic).all()).runs.get(at, [])
        self.topics[at.topic].copied(copied, retained_runs)


def _stored_partitions(stored: State, name: str, start: TopicStart) -> dict[int, MirroredPartition]:
    """A topic's partitions as the state topic has them."""
    found = {}
    for number in start.begun.position.offsets:
        at = TopicPartition(name, number)
        if at in stored.positions:
            found[number] = MirroredPartition(stored.positions[at], stored.runs.get(at, []))
    return found
