"""A task's output, between two kwire brokers and without Spark: once each, wherever it dies."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.offsets import LATEST, list_offsets
from kwire.client.producing import Producer
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.offsets import Run
from kwire.pipeline.mirror.origins import Origin
from kwire.pipeline.mirror.state import Position, State
from kwire.pipeline.mirror.topic import MirroredPartition
from kwire.pipeline.mirror.writing import (
    AnotherMirror,
    Copied,
    OffsetRange,
    PositionLost,
    Writing,
    copy_range,
    copy_rows,
    declare,
)
from kwire.testing import Broker
from testkit.clients.committed_records import records_of, rows, without_offsets

_SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def source() -> Iterator[Cluster]:
    with Broker(settings=_SETTINGS) as running, Cluster(running.address) as found:
        yield found


@pytest.fixture(scope="module")
def target() -> Iterator[Cluster]:
    with Broker(settings=_SETTINGS) as running, Cluster(running.address) as found:
        yield found


class Killed(BaseException):
    """A process that is no more."""


def now_ms() -> int:
    return int(time.time() * 1000)


@attrs.define(eq=False)
class Scene:
    """A topic of two partitions in two clusters, and a mirror that copies ranges of it."""

    source: Cluster
    target: Cluster
    topic: str
    exactly_once: bool = True
    transaction_bytes: int = 400
    run_id: str = "first"
    known: dict[TopicPartition, Position] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for cluster in (self.source, self.target):
            create_topics(cluster, [NewTopic(self.topic, 2)])
        self.state_topic.make()
        for partition in (0, 1):
            at = TopicPartition(self.topic, partition)
            self.known[at] = declare(self.target, self.writing(), self._first(at), now_ms=now_ms)

    @property
    def state_topic(self) -> CompactedTopic:
        return CompactedTopic(self.target, f"kwire-mirror-{self.topic}")

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def writing(self, run_id: str | None = None) -> Writing:
        return Writing(
            name=self.topic,
            state_topic=self.state_topic.at.topic,
            run_id=run_id or self.run_id,
            exactly_once=self.exactly_once,
            compression=0,
            transaction_bytes=self.transaction_bytes,
        )

    def _first(self, at: TopicPartition) -> Position:
        return Position(
            at=at,
            next=0,
            target_topic=self.topic,
            target_begin=0,
            cluster_id="a",
            topic_id="t",
            target_topic_id="u",
            origins=frozenset({Origin("a", self.topic)}),
            run_id=self.run_id,
        )

    def send(self, count: int, *, partition: int = 0, aborted: int = 0) -> None:
        """Sends records of the source, in a transaction; and some more that are aborted."""
        at = TopicPartition(self.topic, partition)
        producer = Producer(self.source, transactional_id=f"sends-{next(_numbers)}")
        producer.init()
        with producer.transaction():
            producer.produce({at: [self._record() for _ in range(count)]})
        if aborted:
            producer.begin()
            producer.produce({at: [self._record() for _ in range(aborted)]})
            producer.abort()

    def _record(self) -> Record:
        number = next(_numbers)
        return Record(0, 1_000 + number, b"key %d" % (number % 5), b"value %d" % number, (("n", b"%d" % number),))

    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """Returns ranges from the driver's position to the source's end."""
        ends = list_offsets(self.source, self.topic, LATEST)
        return {
            at: OffsetRange(position=it, until=ends[at.partition], batch_bytes=150)
            for at, it in self.known.items()
            if ends[at.partition] > it.next
        }

    def batch(self, **options: Any) -> list[Copied]:
        """Writes a batch, as the driver has it written."""
        ranges = self.ranges()
        given = {"still_so": lambda _: None, "now_ms": now_ms, **options}
        copied = list(copy_rows(self.target, self.writing(), ranges, rows(self.source, ranges), **given))
        done = {it.position.at for it in copied}
        for at, offset_range in ranges.items():
            if at not in done:
                copied.append(copy_range(self.target, self.writing(), offset_range, (), now_ms=now_ms))
        for it in copied:
            self.known[it.position.at] = it.position
        return copied

    def begin_again(self, run_id: str) -> None:
        """Starts a new driver with the stored state. Open transactions of the writers' names are ended first."""
        self.run_id = run_id
        for at in self.known:
            Producer(self.target, transactional_id=self.writing().transactional_id(at)).init()
        self.known = dict(State.read(self.state_topic.all()).positions)

    def mirrored(self, at: TopicPartition) -> MirroredPartition:
        state = State.read(self.state_topic.all())
        return MirroredPartition(state.positions[at], state.runs.get(at, []))

    def check_copy(self) -> None:
        """Checks that all is there once, and that the map finds each of it."""
        for partition in (0, 1):
            at = TopicPartition(self.topic, partition)
            here, there = records_of(self.source, at), records_of(self.target, at)
            assert without_offsets(there) == without_offsets(here)
            mirrored = self.mirrored(at)
            for one, other in zip(here, there, strict=True):
                assert mirrored.translate(one.offset) == other.offset
            end = list_offsets(self.source, self.topic, LATEST)[partition]
            assert mirrored.position.next == end
            assert mirrored.translate(end) == (there[-1].offset + 1 if there else 0)


@pytest.fixture
def scene(source: Cluster, target: Cluster) -> Scene:
    return Scene(source, target, f"t{next(_numbers)}")


def test_records_are_copied_unchanged_and_the_map_has_their_offsets(scene: Scene) -> None:
    scene.send(7, aborted=3)
    scene.send(1, partition=1)
    first = scene.batch()
    assert [it.records for it in first] == [7, 1]
    scene.send(2)
    scene.send(3, partition=1, aborted=1)
    assert [it.records for it in scene.batch()] == [2, 3]
    scene.check_copy()
    assert scene.batch() == []


def test_what_is_nothing_but_aborted_moves_the_position_alone(scene: Scene) -> None:
    scene.send(1, aborted=1)
    scene.batch()
    Producer(scene.source, transactional_id="x").init()
    producer = Producer(scene.source, transactional_id="aborts")
    producer.init()
    producer.begin()
    producer.produce({scene.at: [Record(0, 1, b"", b"never")]})
    producer.abort()
    (copied,) = scene.batch()
    assert (copied.records, copied.runs) == (0, [])
    scene.check_copy()


def test_without_transactions_a_run_continues_across_batches(source: Cluster, target: Cluster) -> None:
    scene = Scene(source, target, f"t{next(_numbers)}", exactly_once=False)
    for _ in range(3):
        Producer(source).produce({scene.at: [Record(0, 1, b"", b"v") for _ in range(5)]})
        scene.batch()
    scene.check_copy()
    assert scene.mirrored(scene.at).runs == [Run(0, 0, 15)]


_STEPS = ("take", "begin", "write", "keep", "commit", "committed")


def _dying(step: str, count: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a hook that dies at the n-th call for a step. A dead process aborts nothing."""
    left = itertools.count(1)

    def reached(name: str) -> None:
        if name == step and next(left) == count:
            monkeypatch.setattr(Producer, "abort", lambda _: None)
            raise Killed

    return reached


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("step", _STEPS)
def test_a_task_that_dies_at_any_step_leaves_nothing_out_and_doubles_nothing(
    scene: Scene, step: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.send(9, aborted=2)
    scene.send(9, partition=1)
    with monkeypatch.context() as dead, pytest.raises(Killed):
        scene.batch(step=_dying(step, count if step != "take" else min(count, 2), dead))
    scene.begin_again("second")
    scene.send(4)
    scene.batch()
    scene.check_copy()


@pytest.mark.parametrize("step", ["write", "keep", "commit", "committed"])
def test_without_transactions_nothing_is_left_out(
    source: Cluster, target: Cluster, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(source, target, f"t{next(_numbers)}", exactly_once=False)
    scene.send(9, aborted=2)
    with monkeypatch.context() as dead, pytest.raises(Killed):
        scene.batch(step=_dying(step, 2, dead))
    scene.begin_again("second")
    scene.send(4)
    scene.batch()
    here, there = (without_offsets(records_of(cluster, scene.at)) for cluster in (source, target))
    assert {it.value for it in there} == {it.value for it in here}
    assert list(dict.fromkeys(there)) == here, "doubles come behind the first ones"
    mirrored = scene.mirrored(scene.at)
    behind = {it.offset: it.value for it in records_of(target, scene.at)}
    for record in records_of(source, scene.at):
        following = min(offset for offset in behind if offset >= mirrored.translate(record.offset))
        assert behind[following] == record.value


def test_a_task_that_is_run_again_passes_over_what_it_has_written(scene: Scene) -> None:
    scene.send(9)
    known = dict(scene.known)
    scene.batch()
    scene.known = known  # the driver did not get the result
    (copied,) = scene.batch()
    assert (copied.records, copied.was_further) == (0, True)
    scene.check_copy()


def test_another_mirror_of_the_name_is_noticed(scene: Scene) -> None:
    scene.send(3)
    known = dict(scene.known)
    scene.run_id = "other"
    scene.batch()
    scene.run_id, scene.known = "first", known
    scene.send(3)
    with pytest.raises(AnotherMirror, match=f"another mirror named {scene.topic} writes {scene.at}"):
        scene.batch()
    with pytest.raises(AnotherMirror):
        scene.batch(
            step=lambda step: (
                scene.writing("thief").writer(scene.target, known[scene.at], now_ms) if step == "write" else None
            )
        )


def test_a_position_that_went_back_is_reported(scene: Scene) -> None:
    scene.send(3)
    scene.batch()
    scene.send(3)
    scene.known[scene.at] = attrs.evolve(scene.known[scene.at], next=5)
    with pytest.raises(PositionLost, match="is offset 4, and was offset 5"):
        scene.batch()


def test_what_is_found_wrong_before_the_commit_leaves_nothing_there(scene: Scene) -> None:
    def refuse(topic: str) -> None:
        raise PipelineError(f"{topic} is another")

    scene.send(3)
    with pytest.raises(PipelineError, match="is another"):
        scene.batch(still_so=refuse)
    assert records_of(scene.target, scene.at) == []
    assert scene.mirrored(scene.at).position.next == 0


def test_runs_that_are_given_up_are_gone(scene: Scene) -> None:
    for _ in range(3):
        scene.send(1)
        scene.batch()
    assert [it.source for it in scene.mirrored(scene.at).runs] == [0, 2, 4]
    scene.send(1)
    offset_range = attrs.evolve(scene.ranges()[scene.at], dropped=[Run(2, 2, 1)])
    records = (record for _, record in rows(scene.source, {scene.at: offset_range}))
    copy_range(scene.target, scene.writing(), offset_range, records, now_ms=now_ms)
    assert [it.source for it in scene.mirrored(scene.at).runs] == [0, 4, 6]


def test_what_is_declared_does_not_take_back_what_is_further(scene: Scene) -> None:
    before = scene.known[scene.at]
    scene.send(3)
    scene.batch()
    assert declare(scene.target, scene.writing(), before, now_ms=now_ms) == scene.known[scene.at]
    assert scene.mirrored(scene.at).position == scene.known[scene.at]
