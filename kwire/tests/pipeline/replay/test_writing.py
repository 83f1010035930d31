"""A replay's tasks, killed and started again: each record once, in order. A kwire broker, no Spark."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import attrs
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kwire_protocol.records import Record

from kwire.client import waiting
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.fetching import PartitionReader
from kwire.client.offsets import LATEST, IsolationLevel, list_offsets
from kwire.client.producing import Producer
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.delivery.parts import abort_orphans
from kwire.pipeline.delivery.positioned import PositionedWriter
from kwire.pipeline.errors import Interrupted
from kwire.pipeline.replay import writing
from kwire.pipeline.replay.pinned import Pinned, PinnedTable, State, key_of, position_key
from kwire.pipeline.replay.writing import (
    Assignment,
    Position,
    Row,
    driver_id,
    rows_of,
    transactional_id,
    write_rows,
)
from kwire.testing import Broker

TARGETS = 2
_names = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"transaction.state.log.num.partitions": "1"}) as running:
        yield running


@attrs.define(eq=False)
class Scene:
    """A target, and a replay into it that is under way."""

    broker: Broker
    assignment: Assignment

    @classmethod
    def new(cls, broker: Broker, rate_per_s: float | None = None) -> Scene:
        name = f"replay-{next(_names)}"
        assignment = Assignment(
            bootstrap=broker.address,
            topic=name,
            state_topic=f"{name}-kept",
            name=name,
            generation=1,
            rate_per_s=rate_per_s,
            timeout_s=10.0,
        )
        with Cluster(broker.address) as cluster:
            create_topics(cluster, [NewTopic(name, TARGETS)])
            CompactedTopic(cluster, assignment.state_topic).make()
        it = cls(broker, assignment)
        it.pin()
        return it

    def pin(self, state: State = "running", generation: int = 1) -> None:
        """Writes what the driver keeps: at the end without the positions."""
        pinned = Pinned(
            run="r",
            generation=generation,
            state=state,
            command={},
            source=PinnedTable(1, "TRUE"),
            target_id="",
            partitions=TARGETS,
        )
        name = self.assignment.name
        with Cluster(self.broker.address) as cluster:
            state_topic = CompactedTopic(cluster, self.assignment.state_topic)
            writer = PositionedWriter(cluster, driver_id(name), state_topic, key_of(name), now_ms=now_ms)
            gone = {} if state == "running" else {position_key(name, 1, target): None for target in range(TARGETS)}
            with writer.transaction():
                writer.keep(pinned.to_json(), gone)

    def write(self, rows: Iterable[Row], clock: waiting.Clock | None = None) -> None:
        """Writes as a run of its own."""
        with Cluster(self.broker.address) as cluster:
            abort_orphans(cluster, transactional_id(self.assignment.name, None))
            write_rows(cluster, self.assignment, rows, now_ms=now_ms, clock=clock or waiting.SystemClock())

    def written(self) -> dict[int, list[Record]]:
        """Returns each partition's committed records."""
        found = {}
        with Cluster(self.broker.address) as cluster:
            ends = list_offsets(cluster, self.assignment.topic, LATEST, isolation_level=IsolationLevel.READ_COMMITTED)
            for target, end in ends.items():
                at = TopicPartition(self.assignment.topic, target)
                with PartitionReader(cluster, at, 0, end, isolation_level=IsolationLevel.READ_COMMITTED) as reader:
                    found[target] = [it._replace(offset=0) for it in reader.records()]
        return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def row(target: int, partition: int, offset: int) -> Row:
    """Makes a row whose value has its origin."""
    return Row(target, partition, offset, Record(0, offset, b"k%d" % partition, b"%d:%d" % (partition, offset)))


class Killed(BaseException):
    """The process is gone: nothing that would put things in order is called."""


@attrs.define(eq=False)
class Killer:
    """A hook that kills at the n-th of the moments of a task, and counts on."""

    at: int
    moment: int = 0

    def __call__(self) -> None:
        self.moment += 1
        if self.moment >= self.at:
            raise Killed

    def among(self, rows: Iterable[Row]) -> Iterator[Row]:
        for it in rows:
            self()
            yield it

    def around(self, call: Callable[..., object]) -> Callable[..., object]:
        def killing(*arguments: object, **named: object) -> object:
            self()
            found = call(*arguments, **named)
            self()
            return found

        return killing


def merged(places: Iterable[tuple[int, int, int]], dice: random.Random) -> list[Row]:
    """Merges by target; within it each source partition in order, and these in some way, each time another."""
    by_source: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for target, partition, offset in sorted(places):
        by_source[target, partition].append(row(target, partition, offset))
    found = []
    for target in sorted({target for target, _ in by_source}):
        left = [list(reversed(rows)) for (its, _), rows in by_source.items() if its == target]
        while left := [it for it in left if it]:
            found.append(dice.choice(left).pop())
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.sets(st.tuples(st.integers(0, TARGETS - 1), st.integers(0, 2), st.integers(0, 12)), min_size=8),
    kills=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=4),
    dice=st.randoms(use_true_random=False),
)
def test_whenever_it_is_killed_each_record_is_there_once_and_in_order(
    broker: Broker, places: set[tuple[int, int, int]], kills: list[tuple[int, int]], dice: random.Random
) -> None:
    """Between two runs compaction may take some of the source, and the partitions are merged in another way."""
    scene, whole, there = Scene.new(broker), set(places), set(places)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "TRANSACTION_RECORDS", 3)
        for at, compacted in kills:
            killer = Killer(at)
            with pytest.MonkeyPatch.context() as deadly:
                for name in ("produce", "commit"):
                    deadly.setattr(Producer, name, killer.around(getattr(Producer, name)))
                deadly.setattr(Producer, "abort", lambda _: None)
                with suppress(Killed):
                    scene.write(killer.among(merged(there, dice)))
            there -= set(dice.sample(sorted(there), min(compacted, len(there))))
        scene.write(merged(there, dice))
    found = {target: [it.value for it in records] for target, records in scene.written().items()}

    counts = Counter((target, value) for target, values in found.items() for value in values)
    assert set(counts.values()) <= {1}
    assert {(target, row(target, *place).record.value) for target, *place in there} <= set(counts)
    assert set(counts) <= {(target, row(target, *place).record.value) for target, *place in whole}
    for values in found.values():
        for partition in range(3):
            offsets = [int(it.split(b":")[1]) for it in values if it is not None and it.startswith(b"%d:" % partition)]
            assert offsets == sorted(offsets)


def test_keys_values_headers_and_timestamps_are_as_they_were(broker: Broker) -> None:
    scene = Scene.new(broker)
    records = [
        Record(0, 1_700_000_000_123, b"k", b"v", (("a", b"1"), ("a", None), ("b", b""))),
        Record(0, -1, None, b""),
        Record(0, 5, b"", None),
    ]
    scene.write([Row(1, 0, offset, it) for offset, it in enumerate(records)])
    assert scene.written() == {0: [], 1: records}


def test_a_second_run_writes_nothing_and_another_generation_writes_all_again(broker: Broker) -> None:
    scene, rows = Scene.new(broker), [row(0, 0, 0), row(0, 1, 0), row(1, 0, 1)]
    scene.write(rows)
    scene.write(rows)
    assert [len(it) for it in scene.written().values()] == [2, 1]
    scene.assignment = attrs.evolve(scene.assignment, generation=2)
    scene.pin("running", generation=2)
    scene.write(rows)
    assert [len(it) for it in scene.written().values()] == [4, 2]


@pytest.mark.parametrize(("state", "generation"), [("written", 1), ("running", 2)])
def test_a_task_that_comes_when_the_replay_is_over_writes_nothing(
    broker: Broker, state: State, generation: int
) -> None:
    """It finds no position, since those go at the end, and must not begin once more."""
    scene = Scene.new(broker)
    scene.write([row(0, 0, 0)])
    scene.pin("done")
    scene.pin(state, generation)
    with pytest.raises(Interrupted, match="is over, or was started again"):
        scene.write([row(0, 0, 0)])
    assert len(scene.written()[0]) == 1


@attrs.define(eq=False)
class Clock:
    """A clock that only sleeping moves; `slept` has when a task slept, and for how long."""

    now_s: float = 0.0
    slept: list[tuple[float, float]] = attrs.field(factory=list)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append((self.now_s, seconds))
        self.now_s += seconds


def test_a_slow_replay_commits_each_second_and_waits_outside_of_transactions(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, clock = Scene.new(broker, rate_per_s=4.0), Clock()
    commits: list[float] = []
    open_since: list[float] = []
    begin, commit = Producer.begin, Producer.commit

    def begun(it: Producer) -> None:
        begin(it)
        open_since.append(clock.now_s)

    def committed(it: Producer) -> None:
        commit(it)
        commits.append(clock.now_s)

    monkeypatch.setattr(Producer, "begin", begun)
    monkeypatch.setattr(Producer, "commit", committed)
    scene.write([row(0, 0, offset) for offset in range(40)], clock)
    assert sum(map(len, scene.written().values())) == 40
    assert clock.now_s == pytest.approx(39 / 4, abs=0.3)
    assert open_since == commits
    assert all(after - before <= 1.3 for before, after in itertools.pairwise([0.0, *commits]))
    assert len(commits) <= 12


def test_positions_are_read_as_they_were_kept_and_refuse_a_row_that_comes_too_late() -> None:
    position = Position().behind([row(0, 1, 4), row(0, 0, 7), row(0, 1, 9)])
    assert position == Position(3, {0: 8, 1: 10})
    assert Position.from_json(position.to_json()) == position
    with pytest.raises(AssertionError, match="too late"):
        position.behind([row(0, 1, 5)])


def test_rows_come_out_of_arrow_columns() -> None:
    batch = pa.record_batch(
        {
            "target": pa.array([1, 1, 2], pa.int32()),
            "partition": pa.array([0, 1, 0], pa.int32()),
            "offset": pa.array([5, 6, 7], pa.int64()),
            "timestamp_ms": pa.array([1, 2, -1], pa.int64()),
            "key": pa.array([b"k", None, b""], pa.binary()),
            "value": pa.array([None, b"v", b""], pa.binary()),
            "headers": pa.array(['[{"key":"a","value":"MQ=="},{"key":"b"}]', None, "[]"], pa.string()),
        }
    )
    assert list(rows_of([batch])) == [
        Row(1, 0, 5, Record(0, 1, b"k", None, (("a", b"1"), ("b", None)))),
        Row(1, 1, 6, Record(0, 2, None, b"v")),
        Row(2, 0, 7, Record(0, -1, b"", b"")),
    ]
