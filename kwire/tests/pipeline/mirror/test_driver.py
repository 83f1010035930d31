"""A mirror's driver and its upkeep, between two kwire brokers. Tasks do their work here, without Spark."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.groups import commit_offsets, fetch_offsets
from kwire.client.offsets import LATEST, IsolationLevel, list_offsets
from kwire.client.producing import DEFAULT_BATCH_BYTES, Producer
from kwire.client.topics import NewTopic, alter_topic_configs, create_partitions, create_topics, topic_overrides
from kwire.pipeline.clock import now_ms
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.errors import Interrupted, PipelineError
from kwire.pipeline.mirror import driver as driver_module
from kwire.pipeline.mirror.driver import Driver
from kwire.pipeline.mirror.handover import Handover
from kwire.pipeline.mirror.origins import Cycle, Origin
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.start import JobStart, job_start
from kwire.pipeline.mirror.state import Position, State
from kwire.pipeline.mirror.task import MirrorTask
from kwire.pipeline.mirror.topic import Terms
from kwire.pipeline.mirror.topics import TargetTopics
from kwire.pipeline.mirror.upkeep import Duties, Upkeep, UpkeepThread
from kwire.pipeline.mirror.writing import AnotherMirror
from kwire.testing import Broker
from testkit.basics.threads import switching_often
from testkit.clients.committed_records import records_of, rows, without_offsets

_SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
_numbers = itertools.count(1)
Results = Callable[[list[str]], Sequence[str]]


@attrs.define(eq=False)
class Clusters:
    source_address: str
    target_address: str
    source: Cluster
    target: Cluster


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    with (
        Broker(settings=_SETTINGS) as one,
        Broker(settings=_SETTINGS) as other,
        Cluster(one.address) as source,
        Cluster(other.address) as target,
    ):
        yield Clusters(one.address, other.address, source, target)


@attrs.define(eq=False)
class Mirror:
    """A topic of one partition at the source, and a run of a mirror that copies it."""

    clusters: Clusters
    topic: str = attrs.field(factory=lambda: f"t{next(_numbers)}")
    run_id: str = "first"
    warnings: list[str] = attrs.field(factory=list)
    driver: Driver = attrs.field(init=False)
    upkeep: Upkeep = attrs.field(init=False)
    handover: Handover = attrs.field(factory=lambda: Handover(TargetTopics(())))

    def __attrs_post_init__(self) -> None:
        plan = MirrorPlan(
            source=self.clusters.source_address,
            target=self.clusters.target_address,
            topics=(self.topic,),
            name=self.topic,
            groups=f"{self.topic}-.*",
            exactly_once=True,
        )
        self.driver = Driver(plan, self.run_id, self.handover, self.warnings.append, timeout_s=20.0)
        self.upkeep = Upkeep(plan, self.handover, timeout_s=20.0)

    @property
    def source(self) -> Cluster:
        return self.clusters.source

    @property
    def target(self) -> Cluster:
        return self.clusters.target

    @property
    def stored(self) -> State:
        return State.read(CompactedTopic(self.target, f"kwire-mirror-{self.topic}").all())

    def at(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def send(self, count: int = 1, *, partition: int = 0, committed: bool = True) -> None:
        """Sends records of the source, in a transaction."""
        producer = Producer(self.source, transactional_id=f"sends-{next(_numbers)}")
        producer.init()
        producer.begin()
        producer.produce({self.at(partition): [Record(0, 1, b"k", b"%d" % next(_numbers)) for _ in range(count)]})
        if committed:
            producer.commit()
        else:
            producer.abort()

    def grow(self, partitions: int) -> None:
        create_partitions(self.source, self.topic, partitions)

    def configure(self, cluster: Cluster, **values: str) -> None:
        alter_topic_configs(cluster, self.topic, {name.replace("_", "."): value for name, value in values.items()})

    def batch(self, results: Results = lambda found: found) -> dict[str, int]:
        """Runs a batch of all that is committed. `results` is what becomes of the tasks' results."""
        self.source.forget_topic(self.topic)
        ends = list_offsets(self.source, self.topic, LATEST, isolation_level=IsolationLevel.READ_COMMITTED)

        def copy(task: MirrorTask) -> Sequence[str]:
            return results([json.dumps(it) for it in task.results(rows(self.source, task.ranges))])

        return self.driver.write({self.topic: ends}, copy)

    def another_run(self) -> Mirror:
        return Mirror(self.clusters, self.topic, run_id=f"run-{next(_numbers)}")

    def declare_origin(self, origin: Origin) -> None:
        """Declares it as a mirror does that writes the topic at the source."""
        topic_id = str(self.source.topic(self.topic).topic_id)
        position = Position(
            at=TopicPartition("first", 0),
            next=0,
            target_topic=self.topic,
            target_begin=0,
            cluster_id=origin.cluster_id,
            topic_id="",
            target_topic_id=topic_id,
            origins=frozenset({origin}),
            run_id="r",
        )
        state_topic = CompactedTopic(self.source, f"kwire-mirror-to-{self.topic}")
        state_topic.make()
        state_topic.write({position.key: position.value()}, now_ms())

    def check_copy(self) -> None:
        """Checks that all is there once. The driver's maps match the state topic, and lead to the same records."""
        stored = self.stored
        for number, mirrored in self.driver.topics[self.topic].partitions.items():
            at = self.at(number)
            here, there = records_of(self.source, at), records_of(self.target, at)
            assert without_offsets(there) == without_offsets(here)
            for one, other in zip(here, there, strict=True):
                assert mirrored.translate(one.offset) == other.offset
            assert (mirrored.position, [*mirrored.runs]) == (stored.positions[at], stored.runs.get(at, []))


@pytest.fixture
def mirror(clusters: Clusters) -> Mirror:
    found = Mirror(clusters)
    create_topics(clusters.source, [NewTopic(found.topic, 1)])
    return found


# The driver.


def test_a_batch_moves_the_positions_and_returns_the_number_of_records(mirror: Mirror) -> None:
    mirror.driver.begin()
    assert mirror.batch() == {}
    mirror.send(3)
    assert mirror.batch() == {mirror.topic: 3}
    assert mirror.driver.topics[mirror.topic].step(3, 1.0).lag == {0: 0}
    mirror.send(2, committed=False)
    assert mirror.batch() == {mirror.topic: 0}
    mirror.check_copy()
    assert mirror.batch() == {}


def test_a_new_partition_is_mirrored_from_its_start_and_with_it_come_the_configurations(mirror: Mirror) -> None:
    mirror.driver.begin()
    mirror.send(2)
    mirror.grow(3)
    mirror.configure(mirror.source, max_message_bytes="5000")
    mirror.send(4, partition=2)
    assert mirror.batch() == {mirror.topic: 6}
    mirror.check_copy()
    assert mirror.driver.topics[mirror.topic].offsets == {0: 3, 1: 0, 2: 5}
    assert mirror.driver.topics[mirror.topic].terms.batch_bytes < 5000
    assert topic_overrides(mirror.target, [mirror.topic])[mirror.topic]["max.message.bytes"] == "5000"


def test_a_run_may_begin_again_unless_another_one_has_moved_its_positions(mirror: Mirror) -> None:
    mirror.driver.begin()
    mirror.send(2)
    mirror.batch()
    mirror.driver.begin()
    mirror.send(1)
    assert mirror.batch() == {mirror.topic: 1}
    other = mirror.another_run()
    other.driver.begin()
    mirror.driver.begin()  # the other one has only begun
    mirror.send(1)
    assert other.batch() == {mirror.topic: 1}
    with pytest.raises(AnotherMirror):
        mirror.driver.begin()
    other.check_copy()


def test_the_results_of_the_other_tasks_count_if_one_fails(mirror: Mirror) -> None:
    mirror.grow(2)
    mirror.driver.begin()
    mirror.send(2)
    mirror.send(3, partition=1)
    failed = json.dumps({"error": "no leader", "kind": "Interrupted"})
    with pytest.raises(Interrupted, match="no leader"):
        mirror.batch(lambda found: [failed, found[1]])
    assert mirror.driver.topics[mirror.topic].offsets == {0: 0, 1: 4}
    assert {at: it.position.next for at, it in (mirror.handover.partitions.take() or {}).items()} == {
        mirror.at(0): 0,
        mirror.at(1): 4,
    }


def test_a_map_whose_runs_were_not_reported_is_read_again(mirror: Mirror) -> None:
    mirror.driver.begin()
    for results in (list[str], lambda _: ()):  # the second time the tasks are done, and the driver does not get it
        mirror.send(3)
        mirror.batch(results)
        mirror.check_copy()
    mirror.send(2)
    mirror.batch()
    mirror.check_copy()


# The upkeep.


def test_what_is_set_at_the_target_stays_until_the_source_changes_it(mirror: Mirror) -> None:
    mirror.configure(mirror.source, retention_ms="1000")
    mirror.driver.begin()

    def at_target() -> str:
        return topic_overrides(mirror.target, [mirror.topic])[mirror.topic]["retention.ms"]

    assert at_target() == "1000"
    mirror.configure(mirror.source, retention_ms="2000")
    mirror.upkeep.follow_topics()
    assert at_target() == "2000"
    mirror.configure(mirror.target, retention_ms="7")
    mirror.upkeep.follow_topics()
    mirror.driver.begin()
    mirror.upkeep.follow_topics()
    mirror.another_run().driver.begin()
    assert at_target() == "7"
    mirror.configure(mirror.source, retention_ms="3000")
    mirror.driver.begin()
    assert at_target() == "3000"
    mirror.configure(mirror.target, retention_ms="7")
    mirror.upkeep.follow_topics()
    assert at_target() == "7", "the start has copied it"
    assert mirror.stored.configs[mirror.topic] == {"retention.ms": "3000"}


def test_the_next_batch_declares_new_origins_and_keeps_to_a_new_limit(mirror: Mirror) -> None:
    mirror.driver.begin()
    mirror.send()
    mirror.batch()
    mirror.declare_origin(Origin("z", "first"))
    mirror.configure(mirror.source, max_message_bytes="4000")
    mirror.upkeep.follow_topics()
    assert {it.cluster_id for it in mirror.stored.positions[mirror.at()].origins} == {mirror.source.cluster_id}
    mirror.batch()
    assert {it.cluster_id for it in mirror.stored.positions[mirror.at()].origins} == {mirror.source.cluster_id, "z"}
    assert mirror.driver.topics[mirror.topic].terms.batch_bytes < 4000
    mirror.check_copy()


def test_a_loop_that_the_upkeep_finds_ends_the_mirror_at_its_next_batch(mirror: Mirror) -> None:
    mirror.driver.begin()
    mirror.send()
    mirror.declare_origin(Origin(mirror.target.cluster_id or "", "elsewhere"))
    with pytest.raises(Cycle):
        mirror.upkeep.follow_topics()
    assert mirror.upkeep.cycle is not None
    with pytest.raises(Cycle, match=f"topic {mirror.topic} would go in a circle"):
        mirror.batch()
    assert records_of(mirror.target, mirror.at()) == []


@pytest.fixture
def overtaken(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Callable[[Origin], None]:
    """While the mirror starts, and has found nothing, another mirror of this origin begins."""

    def overtake(origin: Origin) -> None:
        def look_and_be_overtaken(*about: Any) -> JobStart:
            found = job_start(*about)
            mirror.declare_origin(origin)
            return found

        monkeypatch.setattr(driver_module, "job_start", look_and_be_overtaken)

    return overtake


def test_a_loop_that_comes_up_during_the_start_leaves_no_new_position(
    mirror: Mirror, overtaken: Callable[[Origin], None]
) -> None:
    overtaken(Origin(mirror.target.cluster_id or "", "elsewhere"))
    with pytest.raises(Cycle):
        mirror.driver.begin()
    assert mirror.stored.positions == {}
    assert mirror.driver.topics == {}


def test_the_first_batch_declares_origins_that_come_up_during_the_start(
    mirror: Mirror, overtaken: Callable[[Origin], None]
) -> None:
    overtaken(Origin("z", "first"))
    mirror.driver.begin()
    mirror.send()
    mirror.batch()
    assert {it.cluster_id for it in mirror.stored.positions[mirror.at()].origins} == {mirror.source.cluster_id, "z"}


def test_a_topic_that_was_deleted_at_the_target_is_not_created_again(mirror: Mirror, clusters: Clusters) -> None:
    mirror.driver.begin()
    gone = Mirror(clusters)  # its topic was never made at the target
    with pytest.raises(PipelineError, match=f"topic {gone.topic} at --to was deleted while it was mirrored"):
        TargetTopics(()).follow(mirror.source, mirror.target, {mirror.topic: gone.topic})


def test_groups_get_offsets_of_records_that_are_there(mirror: Mirror) -> None:
    mirror.upkeep.commit_groups()
    mirror.driver.begin()
    mirror.send(2, committed=False)
    mirror.send(2)
    group = f"{mirror.topic}-group"
    commit_offsets(mirror.source, group, {mirror.at(): 4})
    mirror.upkeep.commit_groups()
    assert fetch_offsets(mirror.target, group)[mirror.at()].offset == 0
    mirror.batch()
    mirror.upkeep.commit_groups()
    assert fetch_offsets(mirror.target, group)[mirror.at()].offset == 1
    commit_offsets(mirror.source, group, {mirror.at(): 6})
    mirror.upkeep.commit_groups()  # no batch since
    assert fetch_offsets(mirror.target, group)[mirror.at()].offset == 2


# Both, at the same time.


class OvertakenHandover(Handover):
    """A handover after the upkeep was first with the target's topics, each time. Its findings are out of date."""

    @contextmanager
    def target_topics(self) -> Iterator[TargetTopics]:
        with super().target_topics() as it:
            self.terms.put({topic: Terms(frozenset({Origin("old", topic)}), 1) for topic in it.copied})
            yield it


def test_what_the_driver_finds_itself_is_newer_than_what_the_upkeep_found_before(clusters: Clusters) -> None:
    mirror = Mirror(clusters, handover=OvertakenHandover(TargetTopics(())))
    create_topics(mirror.source, [NewTopic(mirror.topic, 1)])

    def newest() -> tuple[int, bool]:
        mirror.batch()
        terms = mirror.driver.topics[mirror.topic].terms
        return terms.batch_bytes, Origin("old", mirror.topic) in terms.origins

    mirror.driver.begin()
    mirror.driver.begin()
    mirror.send()
    assert newest() == (DEFAULT_BATCH_BYTES, False)
    mirror.grow(2)
    mirror.send(partition=1)
    assert newest() == (DEFAULT_BATCH_BYTES, True), "the origins come from the upkeep, the limit does not"
    mirror.send()
    assert newest()[0] == DEFAULT_BATCH_BYTES


@switching_often()
def test_batches_and_upkeep_side_by_side_at_their_fastest(mirror: Mirror) -> None:
    rounds, group = 12, f"{mirror.topic}-group"
    mirror.driver.begin()
    upkeep = mirror.upkeep
    duties = Duties([(upkeep.follow_topics, 0.0), (upkeep.commit_groups, 0.0)], mirror.warnings.append)
    thread = UpkeepThread(duties)
    try:
        for number in range(1, rounds + 1):
            mirror.configure(mirror.source, retention_ms=f"{number}000000")
            mirror.grow(number)
            mirror.send(2, partition=number // 2)
            mirror.send(1, partition=number - 1, committed=number % 3 > 0)
            commit_offsets(mirror.source, group, {mirror.at(number // 2): 2})
            mirror.batch()
            if number % 4 == 0:
                mirror.driver.begin()
    finally:
        thread.stop()
    assert mirror.warnings == []
    mirror.check_copy()
    upkeep.follow_topics()
    found = topic_overrides(mirror.target, [mirror.topic])[mirror.topic]
    assert found["retention.ms"] == mirror.stored.configs[mirror.topic]["retention.ms"] == f"{rounds}000000"
    upkeep.commit_groups()
    partitions = mirror.driver.topics[mirror.topic].partitions
    assert {at.partition: it.offset for at, it in fetch_offsets(mirror.target, group).items()} == {
        number: partitions[number].translate(2) for number in {it // 2 for it in range(1, rounds + 1)}
    }
