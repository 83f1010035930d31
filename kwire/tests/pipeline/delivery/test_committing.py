"""A batch is written once, wherever its writer dies. A kwire broker, no Spark; each crash is a step that raises."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import attrs
import pytest
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.connection import BrokerConnection
from kwire.client.fetching import PartitionReader
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kwire.client.producing import Producer, ProducerFenced
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.delivery.committing import BatchTorn, Committed, Committer, PartsLost, PartsTooOld
from kwire.pipeline.delivery.ledger import Decision, Ledger, UnreadableLedger, decode, encode
from kwire.pipeline.delivery.parts import OpenTransaction, Outcome, Part, PartWriter, abort_orphans, end
from kwire.testing import Broker

TIMEOUT_MS = 60_000
PARTITIONS = 2
_names = itertools.count(1)


class Crash(Exception):
    """The driver is gone at this step."""


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    with Broker(settings=settings) as running:
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.address) as found:
        yield found


@attrs.define(eq=False)
class Scene:
    """A writer with two tasks, and a topic that it writes to."""

    cluster: Cluster
    topic: str
    writer: str
    runs: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))
    timeout_ms: int = TIMEOUT_MS

    def part(self, run: int, task: int, values: Sequence[bytes]) -> Part:
        transactional_id = f"{self.committer().prefix}{run}-{task}"
        with PartWriter(self.cluster, transactional_id, task, begun_ms=now_ms(), timeout_ms=self.timeout_ms) as writer:
            for value in values:
                writer.records.add(self.topic, None, Record(0, now_ms(), None, value))
            return writer.finish()

    def parts(self, values: Sequence[bytes] = (b"1", b"2", b"3", b"4")) -> list[Part]:
        """Makes a run of the batch, with its own transactional ids: two tasks write, and one has nothing to write."""
        run = next(self.runs)
        half = len(values) // 2
        return [self.part(run, 0, values[:half]), self.part(run, 1, values[half:]), self.part(run, 2, ())]

    def committer(self, step: Callable[[str], None] = lambda _: None) -> Committer:
        return Committer(cluster=self.cluster, writer=self.writer, timeout_ms=self.timeout_ms, now_ms=now_ms, step=step)

    def commit(self, batch: int, parts: Sequence[Part], crash_at: str = "") -> Committed:
        def step(name: str) -> None:
            if name == crash_at:
                raise Crash(name)

        return self.committer(step).commit(batch, parts)

    def committed(self) -> list[bytes]:
        """Returns all that a reader of committed data sees; no transaction may be open."""
        found = []
        for partition in range(PARTITIONS):
            at = TopicPartition(self.topic, partition)
            first, end_, stable = (
                list_offsets(self.cluster, self.topic, which, partitions=[partition], isolation_level=level)[partition]
                for which, level in (
                    (EARLIEST, IsolationLevel.READ_UNCOMMITTED),
                    (LATEST, IsolationLevel.READ_UNCOMMITTED),
                    (LATEST, IsolationLevel.READ_COMMITTED),
                )
            )
            assert end_ == stable, "a transaction is open"
            with PartitionReader(
                self.cluster, at, first, end_, isolation_level=IsolationLevel.READ_COMMITTED
            ) as reader:
                found += [record.value or b"" for record in reader.records()]
        return sorted(found)


@pytest.fixture
def scene(cluster: Cluster) -> Scene:
    number = next(_names)
    create_topics(cluster, [NewTopic(f"written-{number}", PARTITIONS)])
    return Scene(cluster, f"written-{number}", f"writer {number}")


ONCE = [b"1", b"2", b"3", b"4"]


def test_a_batch_is_seen_when_it_is_committed(scene: Scene) -> None:
    parts = scene.parts()
    assert [it.records for it in parts] == [2, 2, 0]
    assert parts[2].transaction is None
    assert scene.commit(0, parts) is Committed.NOW
    assert scene.committed() == ONCE


def test_batches_follow_each_other_under_the_same_transactional_ids(scene: Scene) -> None:
    for batch in range(3):
        parts = [scene.part(1, task, [b"%d" % (10 * batch + task)]) for task in (0, 1)]
        assert scene.commit(batch, parts) is Committed.NOW
    assert scene.committed() == [b"0", b"1", b"10", b"11", b"20", b"21"]


@pytest.mark.parametrize("run_again_with", [ONCE, [b"other"] * 4])
@pytest.mark.parametrize(
    ("crash_at", "was_decided"),
    [
        ("take", False),
        ("read", False),
        ("decide", False),
        ("commit 0", True),
        ("commit 1", True),
        ("commit 2", True),
        ("sweep", True),
        ("none: the caller's note is missing", True),
    ],
)
def test_wherever_it_crashes_the_batch_is_there_once(
    scene: Scene, crash_at: str, was_decided: bool, run_again_with: list[bytes]
) -> None:
    """Only one run's records are there, even where the second run has others: they are never mixed."""
    with suppress(Crash):
        scene.commit(7, scene.parts(), crash_at)
    again = scene.commit(7, scene.parts(run_again_with))
    assert again is (Committed.BEFORE if was_decided else Committed.NOW)
    assert scene.committed() == (ONCE if was_decided else sorted(run_again_with))
    assert scene.commit(7, scene.parts(run_again_with)) is Committed.BEFORE
    assert scene.commit(8, scene.parts([b"x", b"y"])) is Committed.NOW
    assert scene.committed() == sorted([*(ONCE if was_decided else run_again_with), b"x", b"y"])


@pytest.mark.parametrize("crash_at", ["decide", "commit 1", "sweep"])
def test_brokers_before_transaction_version_2_do_as_well(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, crash_at: str
) -> None:
    monkeypatch.setattr(BrokerConnection, "features", {})
    parts = scene.parts()
    assert parts[0].transaction is not None
    assert not parts[0].transaction.gives_epochs
    with pytest.raises(Crash):
        scene.commit(7, parts, crash_at)
    scene.commit(7, scene.parts())
    assert scene.committed() == ONCE
    lost = scene.parts([b"a", b"b"])
    with pytest.raises(Crash):
        scene.commit(8, lost, "commit 1")
    lose(scene, lost[1])
    assert scene.commit(8, scene.parts([b"a", b"b"])) is Committed.NOW
    assert scene.committed() == sorted([*ONCE, b"a", b"b"])


def test_a_crash_within_the_decision_decides_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision's record is written, and its transaction is not ended."""

    def crash(_: Producer) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "commit", crash)
        with pytest.raises(Crash):
            scene.commit(7, scene.parts())
    assert scene.commit(7, scene.parts([b"a", b"b"])) is Committed.NOW
    assert scene.committed() == [b"a", b"b"]


def test_the_crash_of_a_crashs_repair_is_repaired(scene: Scene) -> None:
    for crash_at in ("commit 1", "commit 0", "commit 1", "sweep"):
        with pytest.raises(Crash):
            scene.commit(7, scene.parts(), crash_at)
    assert scene.commit(7, scene.parts()) is Committed.BEFORE
    assert scene.committed() == ONCE


def test_an_abort_after_the_decision_aborts_nothing(scene: Scene) -> None:
    """Spark calls abort when commit has failed, whatever it had done by then."""
    parts = scene.parts()
    with pytest.raises(Crash):
        scene.commit(7, parts, "commit 1")
    scene.committer().abort(parts)
    assert scene.commit(7, scene.parts()) is Committed.BEFORE
    assert scene.committed() == ONCE


def test_an_abort_before_the_decision_leaves_nothing_open(scene: Scene) -> None:
    parts = scene.parts()
    with pytest.raises(Crash):
        scene.commit(7, parts, "decide")
    scene.committer().abort(parts)
    assert scene.committed() == []


def test_an_older_batch_is_not_written_again(scene: Scene) -> None:
    scene.commit(7, scene.parts())
    assert scene.commit(6, scene.parts()) is Committed.BEFORE
    assert scene.committed() == ONCE


def test_tasks_that_died_or_were_too_many_are_aborted_by_the_next_commit(scene: Scene) -> None:
    given_up = scene.parts([b"zombie"] * 4)
    assert given_up[0].transaction is not None
    other = Scene(scene.cluster, scene.topic, f"{scene.writer}/1")  # a name that begins the same
    its_parts = other.parts([b"o", b"p"])
    scene.commit(0, scene.parts())
    assert end(scene.cluster, given_up[0].transaction, committed=True) is Outcome.LOST
    other.commit(0, its_parts)
    assert scene.committed() == sorted([*ONCE, b"o", b"p"])


def test_a_part_that_fails_is_aborted_at_once(scene: Scene) -> None:
    writer = PartWriter(scene.cluster, "kwire-part/fails", 0, begun_ms=now_ms(), timeout_ms=TIMEOUT_MS)
    with suppress(Crash), writer:
        writer.records.add(scene.topic, 0, Record(value=b"x"))
        writer.records.flush()
        raise Crash
    assert scene.committed() == []


def lose(scene: Scene, part: Part) -> None:
    """Aborts its transaction as a time-out does: another client takes the id."""
    assert part.transaction is not None
    Producer(scene.cluster, transactional_id=part.transaction.transactional_id).init()


def test_decided_parts_that_were_lost_are_replaced_when_they_are_the_same(scene: Scene) -> None:
    parts = scene.parts()
    with pytest.raises(Crash):
        scene.commit(7, parts, "commit 1")  # the first is committed
    lose(scene, parts[1])
    assert scene.commit(7, scene.parts()) is Committed.NOW
    assert scene.committed() == ONCE
    assert scene.commit(7, scene.parts()) is Committed.BEFORE
    assert scene.committed() == ONCE


def test_a_crash_of_that_replacement_is_repaired_too(scene: Scene) -> None:
    parts = scene.parts()
    with pytest.raises(Crash):
        scene.commit(7, parts, "commit 1")
    lose(scene, parts[1])
    seen: list[str] = []

    def step(name: str) -> None:
        seen.append(name)
        if seen.count("commit 1") == 2:
            raise Crash

    with pytest.raises(Crash):
        scene.committer(step).commit(7, scene.parts())
    assert scene.commit(7, scene.parts()) is Committed.BEFORE
    assert scene.committed() == ONCE


def test_decided_parts_that_were_lost_and_are_others_now_tear_the_batch(scene: Scene) -> None:
    parts = scene.parts()
    with pytest.raises(Crash):
        scene.commit(7, parts, "commit 1")
    lose(scene, parts[1])
    with pytest.raises(BatchTorn, match="the parts of tasks 1 took longer than 60000 ms"):
        scene.commit(7, scene.parts([b"1", b"2", b"3", b"other"]))
    assert scene.committed() == [b"1", b"2"]
    # Whatever it was that differed may pass, and then it can be brought to an end.
    assert scene.commit(7, scene.parts()) is Committed.NOW
    assert scene.committed() == ONCE


def test_a_decision_of_which_nothing_was_committed_is_made_again(scene: Scene) -> None:
    parts = scene.parts()
    with pytest.raises(Crash):
        scene.commit(7, parts, "commit 0")
    for part in parts[:2]:
        lose(scene, part)
    assert scene.commit(7, scene.parts([b"a", b"b"])) is Committed.NOW
    assert scene.committed() == [b"a", b"b"]


def test_parts_that_are_lost_during_the_commit_are_reported(scene: Scene) -> None:
    parts = scene.parts()

    def step(name: str) -> None:
        if name == "commit 1":
            lose(scene, parts[1])

    with pytest.raises(PartsLost, match="the parts of tasks 1 of it cannot be committed any more. Run again"):
        scene.committer(step).commit(7, parts)
    scene.committer().abort(parts)
    assert scene.commit(7, scene.parts()) is Committed.NOW
    assert scene.committed() == ONCE


def test_nothing_is_decided_that_may_end_by_itself(scene: Scene) -> None:
    parts = [attrs.evolve(it, begun_ms=it.begun_ms - TIMEOUT_MS // 2 - 1) for it in scene.parts()]
    with pytest.raises(PartsTooOld, match="nothing of it is committed"):
        scene.commit(7, parts)
    assert scene.committed() == []
    assert scene.commit(7, scene.parts()) is Committed.NOW


def test_of_two_runs_at_once_one_decides(scene: Scene) -> None:
    """The first is held up before its decision, and the second takes its place."""
    first, second = scene.parts(), scene.parts()

    def step(name: str) -> None:
        if name == "decide":
            assert scene.commit(7, second) is Committed.NOW

    with pytest.raises(ProducerFenced):
        scene.committer(step).commit(7, first)
    scene.committer().abort(first)
    assert scene.committed() == ONCE


def test_many_writers_share_a_ledger(broker: Broker, scene: Scene) -> None:
    """Each finds its own last decision, far behind those of the others, and compaction or not."""
    names = [f"{scene.writer} of many {number}" for number in range(4)]
    failures: list[BaseException] = []

    def write(name: str, batches: int) -> None:
        try:
            with Cluster(broker.address) as cluster:
                mine = Scene(cluster, scene.topic, name)
                for batch in range(batches):
                    mine.commit(batch, [mine.part(1, 0, [f"{name}: {batch}".encode()])])
        except BaseException as error:
            failures.append(error)

    write("slow", 1)
    threads = [threading.Thread(target=write, args=(name, 15)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(scene.committed()) == 61
    for name, batches in [(names[0], 15), ("slow", 1)]:
        last = Ledger(scene.cluster, name, now_ms).last()
        assert last is not None
        assert last.batch == batches - 1


def test_a_decision_survives_its_encoding() -> None:
    empty = Part(1, 2, 3, None, 4)
    full = Part(0, 10, 1 << 31, OpenTransaction("id", 1, 2, gives_epochs=True), 1_700_000_000_000)
    decision = Decision(9, (full, empty))
    assert decode(encode(decision)) == decision
    for other in (b"{}", b"[1]", b"x", b'{"batch": 1, "parts": [[1]]}'):
        with pytest.raises(UnreadableLedger):
            decode(other)


def test_orphans_of_a_cluster_without_any_are_none(scene: Scene) -> None:
    assert abort_orphans(scene.cluster, "kwire-part/nobody/") == []
