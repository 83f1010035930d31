"""A replay as a run of a job: pins the source, lets Spark write the records, and reports progress.

Each start checks everything again: the first run's decision, the source, the target. A problem that a user has to fix
ends the job there. A failure in Spark leads to another start, which continues where the tasks stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import attrs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError
from kwire.client.waiting import SystemClock
from kwire.pipeline.brokers import TIMEOUT_S, connect, explained, explaining, raised_elsewhere
from kwire.pipeline.clock import now_ms
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.replay.keeper import Keeper, Target, peek, resolve_range, target_of
from kwire.pipeline.replay.order import in_order
from kwire.pipeline.replay.pinned import Pinned, PinnedTable, PinnedTopic, check_source
from kwire.pipeline.replay.plan import ReplayPlan, TableSource, TopicSource, table_condition
from kwire.pipeline.replay.progress import Progress
from kwire.pipeline.replay.sink import write
from kwire.pipeline.replay.source import open_table, table_rows, topic_rows
from kwire.pipeline.replay.writing import Assignment
from kwire.pipeline.report import Report
from kwire.pipeline.tables.draft import Table
from kwire.pipeline.tables.java_errors import raised_in_task
from kwire.pipeline.topics import Topics
from kwire.runtime.callbacks import ignore

_TICK_S: Final = 1.0
_CANCEL_AGAIN_S: Final = 0.5
"""The pause before jobs are cancelled again: a Spark job that was unknown at the first cancel begins after it."""


@attrs.define(eq=False)
class ReplayRun:
    """A replay as a run of a job, its only owner. Its background thread uses only its `pinned` and `failure`.

    topics: the topics of the source's cluster.
    run_id: a different one for each process.
    """

    plan: ReplayPlan
    spark: SparkSession
    topics: Topics
    run_id: str
    report: Report
    query: _Work | None = None
    failure: Exception | None = None
    advanced_s: float = 0.0
    """The time when records were last written, on the monotonic clock."""
    pinned: Pinned | None = None
    """The stored decision of the replay, after this run has taken it over."""
    _cluster: Cluster | None = None
    _clock: SystemClock = attrs.field(factory=SystemClock)
    _reported_s: float = 0.0
    """The time of the last reported step, or of the beginning of the work, on the monotonic clock."""

    @property
    def is_done(self) -> bool:
        """True if the target has all records, and the table's tag is removed."""
        return self.pinned is not None and self.pinned.state == "done"

    def start(self) -> None:
        """Takes the replay over, and begins to write the rest. Raises PipelineError.

        May be called again when the query has ended.
        """
        self.end()
        plan = self.plan
        with explaining():
            self._cluster = connect(plan.bootstrap)
            target = target_of(self._cluster, plan.to_topic)
            if self.pinned is not None:
                self._check_not_overtaken(peek(self._cluster, plan.name, plan.state_topic))
            keeper = Keeper.take(self._cluster, plan.name, plan.state_topic, now_ms)
            found = keeper.pinned()
            if found is not None:
                found.check_command(plan.name, plan.command)
            if found is None or (plan.again and self.pinned is None):
                work = self._begin(keeper, target, generation=1 if found is None else found.generation + 1)
            elif found.state == "done":
                self.pinned, work = found, ignore
            else:
                work = self._go_on(keeper, target, found)
        self.failure = None
        self.query = _Work(self, work)

    def forget_query(self) -> None:
        self.query = None

    def stop(self) -> None:
        """Ends Spark's work. An open transaction is aborted. May be called twice."""
        if self.query is not None:
            self.query.stop()

    def end(self) -> None:
        """Closes the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _check_not_overtaken(self, found: Pinned | None) -> None:
        """Called before the name is taken: two runs would take it from each other again and again."""
        if found is not None and found.run != self.run_id:
            raise PipelineError(
                f"another run of replay {self.plan.name} has taken over, and continues where this one was: one is "
                "enough"
            )

    def _begin(self, keeper: Keeper, target: Target, *, generation: int) -> Callable[[], None]:
        """Pins the current records of the source. Nothing is stored if Spark does not accept the condition."""
        plan = self.plan
        match plan.source:
            case TableSource():
                table = open_table(plan.source, self.spark, self.run_id)
                snapshot_id = table.head().snapshot_id
                if snapshot_id is None:
                    raise PipelineError(f"table {plan.source.table} has no rows yet: no job has written to it")
                source: PinnedTable | PinnedTopic = PinnedTable(snapshot_id, table_condition(plan.range))
            case TopicSource(_, topic):
                state = self.topics.state(topic, "read_committed")
                ranges = resolve_range(plan.range, state, self.topics)
                source = PinnedTopic(state.cluster_id, state.topic_id, ranges)
        pinned = Pinned(
            run=self.run_id,
            generation=generation,
            state="running",
            command=plan.command,
            source=source,
            target_id=target.topic_id,
            partitions=target.partitions,
        )
        return self._prepared(keeper, pinned, is_new=True)

    def _go_on(self, keeper: Keeper, target: Target, found: Pinned) -> Callable[[], None]:
        found.check_target(self.plan.to_topic, target.topic_id, target.partitions)
        return self._prepared(keeper, attrs.evolve(found, run=self.run_id), is_new=False)

    def _prepared(self, keeper: Keeper, pinned: Pinned, *, is_new: bool) -> Callable[[], None]:
        """Returns the work to do after the decision is stored. Raises every error that can be found before it."""
        plan = self.plan
        progress = Progress(plan.name, pinned.generation, {})
        progress.take(keeper.state_topic.all())
        table: Table | None = None
        match plan.source, pinned.source:
            case TableSource(), PinnedTable(snapshot_id):
                table = open_table(plan.source, self.spark, self.run_id)
                position = table.head().position
                progress.ends = {} if position is None else position.offsets
                if pinned.state == "running":
                    if not table.has_snapshot(snapshot_id):
                        raise PipelineError(
                            f"table {plan.source.table} has no snapshot {snapshot_id} any more, of which the replay "
                            "is: --again replays what the table has now"
                        )
                    rows = table_rows(self.spark, table, pinned.source, plan.where)
            case TopicSource(_, topic), PinnedTopic(ranges=ranges):
                progress.ends = {number: until for number, (_, until) in ranges.items()}
                if pinned.state == "running":
                    state = self.topics.state(topic, "read_committed")
                    replayed = progress.replayed(pinned.partitions)
                    check_source(pinned.source, state, replayed, skip_lost=plan.skip_lost)
                    rows = topic_rows(self.spark, plan.source, state, pinned.source, plan.where)
            case _:
                raise AssertionError("a replay keeps to its command")
        keeper.keep(pinned, forget_positions=is_new)
        self.pinned = pinned
        match table, pinned.source:
            case Table(), PinnedTable(snapshot_id) if pinned.state == "running":
                table.tag(plan.tag, snapshot_id)

        def work() -> None:
            self._took_s()
            if pinned.state == "running":
                self._write(rows, pinned, progress)
                progress.take(keeper.state_topic.all())
                self._keep(keeper, attrs.evolve(pinned, state="written", records=progress.records), forget=True)
            # Untagged only now, because a restart needs the snapshot until everything is written.
            if table is not None:
                table.untag(plan.tag)
            assert self.pinned is not None
            self._keep(keeper, attrs.evolve(self.pinned, state="done"))
            self.report.step(progress.last_step(self._took_s()))

        return work

    def _keep(self, keeper: Keeper, pinned: Pinned, *, forget: bool = False) -> None:
        keeper.keep(pinned, forget_positions=forget)
        self.pinned = pinned

    def _write(self, rows: DataFrame, pinned: Pinned, progress: Progress) -> None:
        plan, tasks = self.plan, pinned.partitions
        if plan.rate_per_s is not None:  # each task has its share, so all of them have to run at the same time
            tasks = min(tasks, self.spark.sparkContext.defaultParallelism)
        assignment = Assignment(
            bootstrap=plan.bootstrap,
            topic=plan.to_topic,
            state_topic=plan.state_topic,
            name=plan.name,
            generation=pinned.generation,
            rate_per_s=None if plan.rate_per_s is None else plan.rate_per_s / tasks,
            timeout_s=TIMEOUT_S,
        )
        with self._reporting(progress):
            write(in_order(rows, partitions=pinned.partitions, tasks=tasks), assignment)

    @contextmanager
    def _reporting(self, progress: Progress) -> Iterator[None]:
        """Reports the progress of the tasks each second."""
        over = threading.Event()
        progress.begin()

        def report() -> None:
            since = 0
            while not over.wait(_TICK_S):
                # A failed request is repeated a second later.
                with suppress(ClientError, PipelineError), connect(self.plan.bootstrap) as cluster:
                    found, since = CompactedTopic(cluster, self.plan.state_topic).committed_since(since)
                    progress.take(found)
                    if progress.has_news:
                        self.report.step(progress.step(self._took_s()))
                        self.advanced_s = self._reported_s

        thread = threading.Thread(target=report, name="kwire-replay-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _took_s(self) -> float:
        """The time since the last step, or since the work began. Notes a new step."""
        now_s = self._clock.monotonic()
        before_s, self._reported_s = self._reported_s, now_s
        return now_s - before_s


class _Work(threading.Thread):
    """A run's background work, as a query."""

    def __init__(self, run: ReplayRun, work: Callable[[], None]) -> None:
        super().__init__(name="kwire-replay")
        self._run = run
        self._work = work
        self._error: Exception | None = None
        self._group = f"replay {run.plan.name} {run.run_id}"
        self.start()

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self.is_alive()

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        """Cancels the work, and waits until it has ended."""
        while self.is_alive():
            self._run.spark.sparkContext.cancelJobGroup(self._group)
            self.join(_CANCEL_AGAIN_S)

    def run(self) -> None:
        self._run.spark.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
        try:
            self._work()
        except Exception as error:
            self._error = error
            self._run.failure = _converted(error)


def _converted(error: Exception) -> Exception:
    """Converts the error that ended the work to one whose type shows if another start is useful."""
    if isinstance(error, ClientError):
        return explained(error)
    if isinstance(error, (PySparkException, Py4JError)):
        kind, message = raised_in_task(error) or ("", first_line(error))
        return raised_elsewhere(kind, message)
    return error
