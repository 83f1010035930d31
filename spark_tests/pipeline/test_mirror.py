"""Topics in another cluster: `kwire pipeline mirror` between two brokers, as other clients see both."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from confluent_kafka import Producer as ConfluentProducer
from pyspark.sql import SparkSession

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.groups import commit_offsets, fetch_offsets
from kwire.client.topics import topic_overrides
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.job import Job
from kwire.pipeline.mirror import driver
from kwire.pipeline.mirror.origins import Cycle
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.run import MirrorRun
from kwire.pipeline.mirror.start import JobStart, job_start
from kwire.pipeline.mirror.state import State
from kwire.pipeline.tables.position import Gap, LostRange
from testkit.basics.waiting import eventually
from testkit.clients import confluent
from testkit.raw import topics
from testkit.servers import brokers
from testkit.spark import records
from testkit.spark.jobs import RecordedReport, Running
from testkit.spark.records import Record, Written, numbered

pytestmark = pytest.mark.more

_numbers = itertools.count(1)
NewTopic = Callable[..., str]


@attrs.define(eq=False)
class Mirrors:
    """Mirrors from one broker to another."""

    spark: SparkSession
    source: str
    target: str

    def run(self, *names: str, report: RecordedReport | None = None, **options: Any) -> MirrorRun:
        """`back`: in the other direction."""
        source, target = (self.target, self.source) if options.pop("back", False) else (self.source, self.target)
        given = {"once": True, "interval_s": 0.1, "groups": None, "name": names[0], **options}
        plan = MirrorPlan(source=source, target=target, topics=names, **given)
        plan.check()
        return MirrorRun(plan, self.spark, f"t{next(_numbers)}", report or RecordedReport(), timeout_s=20.0)

    def once(self, *names: str, **options: Any) -> RecordedReport:
        """Lets a mirror take what there is. Raises what ended it."""
        report = RecordedReport()
        Job([self.run(*names, report=report, **options)], 20.0, report.warning).work()
        return report

    def at_source(self, topic: str) -> list[Written]:
        return records.consume(self.source, topic)

    def at_target(self, topic: str) -> list[Written]:
        return records.consume(self.target, topic)


@pytest.fixture(scope="module")
def second_broker() -> Iterator[brokers.Broker]:
    with brokers.fresh_broker() as running:
        yield running


@pytest.fixture
def mirrors(spark: SparkSession, broker: brokers.Broker, second_broker: brokers.Broker) -> Mirrors:
    return Mirrors(spark, broker.bootstrap, second_broker.bootstrap)


def _without_offsets(found: list[Written]) -> list[Written]:
    return [attrs.evolve(it, offset=0) for it in found]


def test_records_are_there_as_they_were_with_partitions_and_configurations(
    mirrors: Mirrors, new_topic: NewTopic
) -> None:
    topic = new_topic(
        partitions=3, config={"cleanup.policy": "delete", "max.message.bytes": "4000", "min.insync.replicas": "1"}
    )
    stamped_ms = records.an_hour_ago_ms()
    sent = [
        Record(b"value", b"key", 0, [("a", b"1"), ("a", None), ("b", b"")], stamped_ms),
        Record(None, b"key", 1, timestamp_ms=stamped_ms + 1),
        Record(b"", None, 1, timestamp_ms=stamped_ms + 2),
        *(Record(bytes([n]) * 1000, b"", 2, timestamp_ms=stamped_ms + n) for n in range(20)),
    ]
    records.produce(mirrors.source, topic, sent, batch_size=2000)
    (step,) = mirrors.once(topic, exactly_once=True).steps
    assert mirrors.at_target(topic) == mirrors.at_source(topic)
    assert (step.name, step.records, step.offsets) == (topic, 23, {0: 1, 1: 2, 2: 20})
    assert set(step.lag.values()) == {0}
    with Cluster(mirrors.target) as target:
        found = topic_overrides(target, [topic])[topic]
    assert found == {"cleanup.policy": "delete", "max.message.bytes": "4000", "message.timestamp.type": "CreateTime"}


def test_a_mirror_resumes_at_its_position_and_takes_committed_records_only(
    mirrors: Mirrors, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    producer = ConfluentProducer({"bootstrap.servers": mirrors.source, "transactional.id": topic})
    producer.init_transactions(30)
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        for record in numbered(4, first=number * 4, partitions=2):
            producer.produce(topic, record.value, partition=record.partition)
        producer.flush(30)
        ends(30)
        mirrors.once(topic, exactly_once=True)
    records.produce(mirrors.source, topic, numbered(2, first=16, partitions=2))
    mirrors.once(topic, exactly_once=True)
    assert mirrors.once(topic, exactly_once=True).steps == []
    assert _without_offsets(mirrors.at_target(topic)) == _without_offsets(mirrors.at_source(topic))
    assert [int(it.value or b"") for it in mirrors.at_target(topic)] == [0, 2, 8, 10, 16, 1, 3, 9, 11, 17]


def test_groups_continue_at_the_same_record_and_are_not_set_back(
    mirrors: Mirrors, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    topic, gone_over, left_alone = new_topic(partitions=2), unique("group"), unique("left")
    records.produce(mirrors.source, topic, [Record(b"before")])
    records.delete_records(mirrors.source, topic, {0: 1})  # so that offsets differ
    records.produce(mirrors.source, topic, numbered(10))
    first = TopicPartition(topic, 0)
    with Cluster(mirrors.source) as source, Cluster(mirrors.target) as target:
        for group in (gone_over, left_alone):
            commit_offsets(source, group, {first: 5, TopicPartition(topic, 1): 0})
        mirrors.once(topic, groups=re.escape(gone_over))
        assert fetch_offsets(target, left_alone) == {}
        with confluent.consuming(mirrors.target, topic, **{"group.id": gone_over}) as consumer:
            message = eventually(lambda: consumer.poll(0.1), "the consumer reads again")
            assert message.value() == b"4"
            consumer.commit(message, asynchronous=False)
            commit_offsets(source, gone_over, {first: 11})
            mirrors.once(topic, groups=".*")
            assert fetch_offsets(target, gone_over)[first].offset == 5, "it lives there"
        commit_offsets(source, gone_over, {first: 3})
        mirrors.once(topic, groups=".*")
        assert fetch_offsets(target, gone_over)[first].offset == 5
        commit_offsets(source, gone_over, {first: 11})
        mirrors.once(topic, groups=".*")
        assert fetch_offsets(target, gone_over)[first].offset == 10


def test_records_that_came_from_there_are_not_sent_back(mirrors: Mirrors, new_topic: NewTopic) -> None:
    topic = new_topic()
    records.produce(mirrors.source, topic, numbered(3))
    mirrors.once(topic)
    for rename in ("{topic}", "back.{topic}"):
        with pytest.raises(Cycle, match=f"topic {topic} would go in a circle"):
            mirrors.once(topic, back=True, rename=rename, name=f"back.{topic}")
    with pytest.raises(Cycle, match="would be mirrored to itself"):
        Mirrors(mirrors.spark, mirrors.source, mirrors.source).once(topic)
    assert len(mirrors.at_source(topic)) == 3


def test_a_running_mirror_follows_partitions_and_configurations_and_ends_with_its_topic(
    mirrors: Mirrors, new_topic: NewTopic
) -> None:
    topic = new_topic(config={"retention.ms": "3600000"})
    report = RecordedReport()
    it = mirrors.run(topic, report=report, once=False, exactly_once=True)
    it.topics_interval_s = 0.5
    running = Running(Job([it], 60.0, report.warning), it, report)
    running.thread.start()
    try:
        records.produce(mirrors.source, topic, numbered(3))
        running.until_at({0: 3})
        topics.configure(mirrors.source, topic, {"retention.ms": "7200000"})
        topics.grow(mirrors.source, topic, 2)
        records.produce(mirrors.source, topic, [Record(b"new", partition=1)])
        running.until_at({0: 3, 1: 1})
        with Cluster(mirrors.target) as target:
            eventually(
                lambda: topic_overrides(target, [topic])[topic]["retention.ms"] == "7200000", "the target follows"
            )
        topics.delete(mirrors.source, topic)
        topics.create(mirrors.source, topic, partitions=2)
        records.produce(mirrors.source, topic, [Record(b"other")] * 20)
        error = running.until_it_ends()
    finally:
        running.stop()
    assert isinstance(error, PipelineError)
    assert "deleted" in str(error)
    assert [it.value for it in mirrors.at_target(topic)] == [b"0", b"1", b"2", b"new"]


def test_of_two_mirrors_that_begin_together_and_would_go_in_a_circle_one_gives_way(
    mirrors: Mirrors, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    topics.create(mirrors.target, topic)
    records.produce(mirrors.target, topic, numbered(2))
    looked = job_start

    def look_and_be_overtaken(*about: Any) -> JobStart:
        """It finds nothing, and then the other one begins."""
        found = looked(*about)
        monkeypatch.setattr(driver, "job_start", looked)
        mirrors.once(topic, back=True, name=f"back.{topic}")
        return found

    monkeypatch.setattr(driver, "job_start", look_and_be_overtaken)
    with pytest.raises(Cycle):
        mirrors.once(topic)
    records.produce(mirrors.target, topic, numbered(1, first=2))
    mirrors.once(topic, back=True, name=f"back.{topic}")  # nothing keeps it from its work
    assert [it.value for it in mirrors.at_source(topic)] == [b"0", b"1", b"2"]


def test_what_retention_took_is_written_down_and_the_mirror_continues_behind_it(
    mirrors: Mirrors, new_topic: NewTopic
) -> None:
    topic = new_topic()
    records.produce(mirrors.source, topic, numbered(2))
    mirrors.once(topic)
    records.produce(mirrors.source, topic, numbered(4, first=2))
    records.delete_records(mirrors.source, topic, {0: 4})
    with pytest.raises(LostRange, match="partition 0 offsets 2 to 3"):
        mirrors.once(topic)
    report = mirrors.once(topic, on_gap="record")
    assert report.warnings == [f"topic {topic}: partition 0 offsets 2 to 3 were deleted before they were mirrored"]
    assert [it.value for it in mirrors.at_target(topic)] == [b"0", b"1", b"4", b"5"]
    with Cluster(mirrors.target) as target:
        stored = State.read(CompactedTopic(target, f"kwire-mirror-{topic}").all())
    assert stored.gaps == {TopicPartition(topic, 0): [Gap(0, 2, 4)]}
    assert mirrors.once(topic).warnings == []
