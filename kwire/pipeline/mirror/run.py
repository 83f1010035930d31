"""Runs a mirror: one streaming query reads all of its topics, and tasks write each batch.

At its start a run ends the open transactions of a killed run, reads the mirror's position, creates topics, and records
each partition's start and origins. From then on the driver knows all positions and the offset map, and the tasks report
their changes. A second thread does the work that is due even without new records: groups, configurations, partitions,
and the check for a loop of mirrors.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

import attrs
from kwire_protocol.records import Record
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.offsets import LATEST, list_offsets
from kwire.client.producing import Producer
from kwire.pipeline.arrow_tasks import map_in_arrow
from kwire.pipeline.brokers import TIMEOUT_S
from kwire.pipeline.clock import now_ms
from kwire.pipeline.delivery.kept import KeptTopic
from kwire.pipeline.delivery.parts import abort_orphans
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.groups import Mirrored, take_over
from kwire.pipeline.mirror.offsets import renewed, superfluous
from kwire.pipeline.mirror.origins import Cycle, Origin, check_origins
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.start import (
    JobStart,
    both_clusters,
    job_start,
    lineage_at,
    reached,
    source_state,
    target_ids,
)
from kwire.pipeline.mirror.state import TOPIC_PREFIX, Position, State, configs_values, gap_values
from kwire.pipeline.mirror.task import COLUMNS, SCHEMA, MirrorTask, read_told
from kwire.pipeline.mirror.topics import Changes, batch_bytes, carry_out, planned_changes
from kwire.pipeline.mirror.writing import AnotherMirror, Copied, OffsetRange, Writing, copy_stretch, declare
from kwire.pipeline.report import Report, Step
from kwire.pipeline.stream import BatchStream, StreamingRun
from kwire.pipeline.tables import position as tables
from kwire.pipeline.topic_state import TopicState

_TOPICS_INTERVAL_S = 60.0


@attrs.define(eq=False)
class MirrorRun(StreamingRun):
    """A mirror as a run of a job, its only owner. Spark calls `_batch` in its own thread, one batch after the other.

    run_id: the id of this run of the job; it distinguishes two mirrors of the same name.
    """

    plan: MirrorPlan
    spark: SparkSession
    run_id: str
    report: Report
    timeout_s: float = TIMEOUT_S
    topics_interval_s: float = _TOPICS_INTERVAL_S
    advanced_s: float = 0.0
    """The time of the last written batch, on the monotonic clock; at first, the time when the run began."""
    _upkeep: _Upkeep | None = None
    _writing: Writing | None = None
    _mirrored: dict[TopicPartition, Mirrored] = attrs.field(factory=dict)
    _states: dict[str, TopicState] = attrs.field(factory=dict)
    _origins: dict[str, frozenset[Origin]] = attrs.field(factory=dict)
    _target_ids: dict[str, str] = attrs.field(factory=dict)
    _configs: dict[str, Mapping[str, str]] = attrs.field(factory=dict)
    """The configurations that were copied to the target, by topic of the source."""
    _batch_bytes: dict[str, int] = attrs.field(factory=dict)
    """The largest batch of records, by topic of the target."""
    _refusal: PipelineError | None = None
    """An error found outside the batches, which ends the mirror at the next batch."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    """Guards the state that both threads share: `_mirrored`, `_configs`, `_batch_bytes`, `_origins`."""
    _following: threading.Lock = attrs.field(factory=threading.Lock)
    """Held by the thread that changes the target's topics."""

    def __attrs_post_init__(self) -> None:
        self._stream = BatchStream(self.spark, self._batch)

    def start(self) -> None:
        """Starts the query at the mirror's position. Raises PipelineError, also if records were lost.

        May be called again when the query has ended.
        """
        if self.spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
            # The second try would take the partition from the first, which would look like another mirror.
            raise PipelineError("spark.speculation lets two tasks write one partition: set it to false for a mirror")
        with both_clusters(self.plan, timeout_s=self.timeout_s) as (source, target):
            writing = self._named(source, target)
            for topic in self.plan.topics:
                abort_orphans(target, writing.prefix(topic))
            found = job_start(self.plan, source, target)
            self._check_alone(found.kept)
            self._begin(source, target, writing, found)
        if not self.advanced_s:
            self.advanced_s = time.monotonic()
        offsets: dict[str, dict[int, int]] = defaultdict(dict)
        for at, it in self._mirrored.items():
            offsets[at.topic][at.partition] = it.position.next
        self._stream.start(
            f"mirror {writing.name} {self.run_id}",
            self.plan.options(),
            offsets,
            interval_s=None if self.plan.once else self.plan.interval_s,
            max_records=self.plan.max_records_per_batch,
        )
        if self._upkeep is None and not self.plan.once:
            self._upkeep = _Upkeep(self)
            self._upkeep.thread.start()

    def stop(self) -> None:
        """Lets the current batch finish, and ends the query. May be called twice."""
        if self._upkeep is not None:
            self._upkeep.stop()
        self._stream.stop()

    def end(self) -> None:
        """Called after the last query: commits the groups' offsets again."""
        if self._mirrored and self.failure is None and self._refusal is None:
            self.look_after_groups()

    # At the start

    def _named(self, source: Cluster, target: Cluster) -> Writing:
        name = self.plan.named(source.cluster_id, target.cluster_id)
        self._writing = Writing(
            name=name,
            kept_topic=TOPIC_PREFIX + name,
            run_id=self.run_id,
            exactly_once=self.plan.exactly_once,
            compression=self.plan.codec,
        )
        return self._writing

    def _check_alone(self, kept: State) -> None:
        """Raises AnotherMirror if another run has moved positions since this run began."""
        for at, it in self._mirrored.items():
            found = kept.positions.get(at)
            if found is not None and found.run_id not in (self.run_id, it.position.run_id):
                assert self._writing is not None
                raise AnotherMirror(self._writing.name, at)

    def _begin(self, source: Cluster, target: Cluster, writing: Writing, found: JobStart) -> None:
        """Creates topics, and declares the start of each partition."""
        kept = KeptTopic(target, writing.kept_topic)
        kept.make()
        for topic, it in found.topics.items():
            self._follow(target, topic, it.target, it.changes, it.configs)
        names = {it.target for it in found.topics.values()}
        with self._lock:
            self._target_ids = target_ids(target, names)
            self._batch_bytes = batch_bytes(target, names)
            self._origins = {topic: it.origins for topic, it in found.topics.items()}
            self._configs = {**self._configs, **found.kept.configs}
        new: list[Position] = []
        mirrored: dict[TopicPartition, Mirrored] = {}
        for topic, it in found.topics.items():
            self._states[topic] = it.state
            gaps = {gap.partition: gap for gap in it.begun.gaps}
            ends: Mapping[int, int] = {}
            for partition, offset in it.begun.position.offsets.items():
                at = TopicPartition(topic, partition)
                known = found.kept.positions.get(at)
                if known is None:
                    ends = ends or list_offsets(target, it.target, LATEST)
                    position = self._first_position(at, offset, it.state, ends[partition])
                    new.append(position)
                else:
                    position = attrs.evolve(known, next=offset, origins=it.origins)
                if position != known:
                    lost = [gaps[partition]] if partition in gaps else []
                    position = declare(target, writing, position, gap_values(topic, lost), now_ms=now_ms)
                mirrored[at] = Mirrored(position, found.kept.runs.get(at, []))
            for gap in it.begun.gaps:
                self.report.warning(f"topic {topic}: {gap} were deleted before they were mirrored")
        try:
            self._check_origins(source, found.source_id, found.target_id)
        except Cycle:
            # Nothing was written, and the declared origins would stop the other mirror too.
            self._keep(target, {it.key: None for it in new})
            raise
        with self._lock:
            self._mirrored = mirrored

    def _first_position(self, at: TopicPartition, offset: int, state: TopicState, target_end: int) -> Position:
        name = self.plan.target_topic(at.topic)
        return Position(
            at=at,
            next=offset,
            target_topic=name,
            target_begin=target_end,
            cluster_id=state.cluster_id,
            topic_id=state.topic_id,
            target_topic_id=self._target_ids[name],
            origins=self._origins[at.topic],
            run_id=self.run_id,
        )

    def _check_origins(self, source: Cluster, source_id: str, target_id: str) -> None:
        """Stores new origins of the topics. Raises Cycle."""
        lineage = lineage_at(source, self.plan.topics)
        found = {
            topic: check_origins(Origin(source_id, topic), Origin(target_id, to), lineage)
            for topic, to in self.plan.pairs.items()
        }
        with self._lock:
            self._origins = found

    # A batch

    def _batch(self, records: DataFrame, batch_id: int) -> None:
        if self._refusal is not None:
            raise self._refusal
        began_s = time.monotonic()
        assert self._writing is not None
        writing = self._writing
        ends = self._stream.end_of(batch_id)
        with both_clusters(self.plan, timeout_s=self.timeout_s) as (source, target):
            self._look_at_topics(source, ends)
            self._meet_new_partitions(source, target, writing, ends)
        stretches = self._stretches(ends)
        if not stretches:  # a job with --once always has a batch, even if it is empty
            return
        task = MirrorTask(
            source=self.plan.source,
            target=self.plan.target,
            timeout_s=self.timeout_s,
            writing=writing,
            stretches=stretches,
            topic_ids={topic: state.topic_id for topic, state in self._states.items()},
        )
        # From Spark to Python, a column of nulls only takes 20 times as long as one of empty lists.
        no_headers = F.array().cast(records.schema["headers"].dataType)
        rows = records.withColumn("headers", F.coalesce("headers", no_headers)).select(*COLUMNS)
        told = [row.told for row in map_in_arrow(rows, task.copy, SCHEMA).collect()]
        counts = self._take_note(told)
        left = [it for at, it in stretches.items() if self._mirrored[at].position.next < it.until]
        if left:  # only control records, or records that were compacted away
            with reached(self.plan.target, "--to", self.timeout_s) as target:
                for it in left:
                    self._note(copy_stretch(target, writing, it, (), now_ms=now_ms))
        self.advanced_s = time.monotonic()
        self._tell(stretches, counts, self.advanced_s - began_s)

    def _look_at_topics(self, source: Cluster, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Stores the ends of the topics. Raises PipelineError if one was replaced by another."""
        assert self._writing is not None
        for topic in ends:
            state = source_state(self.plan, source, topic)
            offsets = {at.partition: it.position.next for at, it in self._mirrored.items() if at.topic == topic}
            known = tables.Position(state.cluster_id, topic, self._states[topic].topic_id, offsets)
            tables.same_topic(known, state, self.plan.holder(self._writing.kept_topic))
            self._states[topic] = state

    def _meet_new_partitions(
        self, source: Cluster, target: Cluster, writing: Writing, ends: Mapping[str, Mapping[int, int]]
    ) -> None:
        """Adds the source's new partitions to the target, and declares their starts, and new origins."""
        for topic, offsets in ends.items():
            new = sorted(number for number in offsets if TopicPartition(topic, number) not in self._mirrored)
            if new:
                name = self.plan.target_topic(topic)
                self._follow_topics(source, target, {topic: name})
                target.forget_topic(name)
                target_ends = list_offsets(target, name, LATEST)
                for number in new:
                    at = TopicPartition(topic, number)
                    state = self._states[topic]
                    position = self._first_position(at, state.starts[number], state, target_ends[number])
                    self._put(Mirrored(declare(target, writing, position, now_ms=now_ms), []))
            for number in offsets:
                it = self._mirrored[TopicPartition(topic, number)]
                if it.position.origins != self._origins[topic]:
                    position = attrs.evolve(it.position, origins=self._origins[topic])
                    self._put(attrs.evolve(it, position=declare(target, writing, position, now_ms=now_ms)))

    def _stretches(self, ends: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, OffsetRange]:
        found = {}
        for topic, offsets in ends.items():
            for number, until in offsets.items():
                at = TopicPartition(topic, number)
                it = self._mirrored[at]
                if until > it.position.next:
                    found[at] = OffsetRange(
                        position=it.position,
                        until=until,
                        dropped=superfluous(it.runs, self._states[topic].starts[number]),
                        batch_bytes=self._batch_bytes[it.position.target_topic],
                    )
        return found

    def _take_note(self, told: list[str]) -> dict[str, int]:
        """Stores the tasks' results. Returns the number of records by topic. Raises PipelineError if a task failed."""
        counts: dict[str, int] = defaultdict(int)
        problem: PipelineError | None = None
        for text in told:
            try:
                copied = read_told(text)
            except PipelineError as error:
                problem = problem or error
            else:
                counts[copied.position.at.topic] += copied.records
                self._note(copied)
        if problem is not None:
            raise problem
        return counts

    def _note(self, copied: Copied) -> None:
        at = copied.position.at
        before = self._mirrored[at]
        runs = before.runs
        if copied.was_further:  # a task that was run again has written runs that it did not report
            assert self._writing is not None
            with reached(self.plan.target, "--to", self.timeout_s) as target:
                runs = State.read(KeptTopic(target, self._writing.kept_topic).all()).runs.get(at, [])
        dropped = {it.source for it in superfluous(runs, self._states[at.topic].starts.get(at.partition, 0))}
        left = [it for it in runs if it.source not in dropped]
        self._put(Mirrored(copied.position, renewed(left, copied.runs)))

    def _put(self, it: Mirrored) -> None:
        with self._lock:
            self._mirrored[it.position.at] = it

    def _tell(self, stretches: Mapping[TopicPartition, OffsetRange], counts: Mapping[str, int], took_s: float) -> None:
        for topic in dict.fromkeys(at.topic for at in stretches):
            offsets = {at.partition: it.position.next for at, it in self._mirrored.items() if at.topic == topic}
            ends = self._states[topic].ends
            lag = {number: max(0, ends.get(number, at) - at) for number, at in offsets.items()}
            self.report.step(
                Step(name=topic, records=counts.get(topic, 0), errors=0, took_s=took_s, offsets=offsets, lag=lag)
            )

    # Beside the batches

    def look_after_groups(self) -> None:
        """Commits the groups' offsets at the target. Raises PipelineError."""
        if self.plan.groups is None:
            return
        with self._lock:
            mirrored = dict(self._mirrored)
        with both_clusters(self.plan, timeout_s=self.timeout_s) as (source, target):
            take_over(source, target, self.plan.groups, mirrored)

    def look_after_topics(self) -> None:
        """Follows partitions and configurations. Raises PipelineError; Cycle also ends the mirror at its next batch."""
        with both_clusters(self.plan, timeout_s=self.timeout_s) as (source, target):
            self._follow_topics(source, target, self.plan.pairs)
            try:
                self._check_origins(source, source.cluster_id or "", target.cluster_id or "")
            except Cycle as error:
                self._refusal = error
                raise

    def _follow_topics(self, source: Cluster, target: Cluster, pairs: Mapping[str, str]) -> None:
        with self._following:
            with self._lock:
                configs = dict(self._configs)
            planned = planned_changes(source, target, pairs, configs, self.plan.excluded_configs)
            for topic, (it, wanted) in planned.items():
                if it.create:  # creating it again would hide that its records are gone
                    raise PipelineError(f"topic {pairs[topic]} at --to was deleted while it was mirrored")
                self._follow(target, topic, pairs[topic], it, wanted)
            found = batch_bytes(target, list(pairs.values()))
        with self._lock:
            self._batch_bytes = {**self._batch_bytes, **found}

    def _follow(self, target: Cluster, topic: str, name: str, it: Changes, wanted: Mapping[str, str]) -> None:
        if it.is_nothing:
            return
        carry_out(target, name, it)
        self._keep(target, configs_values(topic, wanted))
        with self._lock:
            self._configs[topic] = wanted

    def _keep(self, target: Cluster, values: Mapping[bytes, bytes | None]) -> None:
        """Writes values to the kept topic that belong to no record."""
        assert self._writing is not None
        if values:
            at = KeptTopic(target, self._writing.kept_topic).at
            Producer(target).produce({at: [Record(0, now_ms(), key, value) for key, value in values.items()]})


@attrs.define(eq=False)
class _Upkeep:
    """The second thread of a run, beside the batches."""

    run: MirrorRun
    _over: threading.Event = attrs.field(factory=threading.Event)
    thread: threading.Thread = attrs.field(init=False)
    _warned: str = ""

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=self._work, name="kwire-mirror-upkeep", daemon=True)

    def stop(self) -> None:
        """Returns when its current work has finished."""
        self._over.set()
        self.thread.join()

    def _work(self) -> None:
        plan = self.run.plan
        duties = [(self.run.look_after_topics, self.run.topics_interval_s)]
        if plan.groups is not None:
            duties.append((self.run.look_after_groups, plan.groups_interval_s))
        due_s = [time.monotonic() + interval_s for _, interval_s in duties]
        while not self._over.wait(max(0.0, min(due_s) - time.monotonic())):
            for index, (duty, interval_s) in enumerate(duties):
                if time.monotonic() >= due_s[index]:
                    self._do(duty)
                    due_s[index] = time.monotonic() + interval_s

    def _do(self, duty: Callable[[], None]) -> None:
        """Does one duty. An error is reported once, and the duty is tried again the next time."""
        try:
            duty()
            self._warned = ""
        except PipelineError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                self.run.report.warning(self._warned)
