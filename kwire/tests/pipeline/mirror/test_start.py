"""The start of a mirror, by `--dry-run` and as a value: two kwire brokers, no Spark."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result
from kwire_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.records import Record

from devtools.suite.snapshots import Snapshot
from kwire.cli import main
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.producing import Producer
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.origins import Cycle, Origin
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.start import JobStart, both_clusters, job_start
from kwire.pipeline.mirror.state import Position
from kwire.pipeline.tables.position import LostRange
from kwire.testing import Broker
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import Prompt

NOBODY = "127.0.0.1:1"
_SETTINGS = {"auto.create.topics.enable": "false"}
_numbers = itertools.count(1)


@attrs.define(eq=False)
class Scene:
    """A topic of one partition with five records, and a mirror that has taken three of them."""

    source: str
    target: str
    topic: str = attrs.field(factory=lambda: f"t{next(_numbers)}")

    def __attrs_post_init__(self) -> None:
        with Cluster(self.source) as source, Cluster(self.target) as target:
            create_topics(source, [NewTopic(self.topic, 1, configs={"retention.ms": "1000000"})])
            Producer(source).write(TopicPartition(self.topic, 0), [Record(0, 1, b"k", b"v")] * 5)
            create_topics(target, [NewTopic(self.topic, 1)])
            position = Position(
                at=TopicPartition(self.topic, 0),
                next=3,
                target_topic=self.topic,
                target_begin=0,
                cluster_id=source.cluster_id or "",
                topic_id=str(source.topic(self.topic).topic_id),
                target_topic_id=str(target.topic(self.topic).topic_id),
                origins=frozenset({Origin(source.cluster_id or "", self.topic)}),
                run_id="r",
            )
            state_topic = CompactedTopic(target, f"kwire-mirror-{self.topic}")
            state_topic.make()
            Producer(target).produce(
                {state_topic.at: [Record(0, int(time.time() * 1000), position.key, position.value())]}
            )

    def plan(self, **options: Any) -> MirrorPlan:
        given = {"source": self.source, "target": self.target, "topics": (self.topic,), "name": self.topic, **options}
        return MirrorPlan(**given)

    def job_start(self, **options: Any) -> JobStart:
        plan = self.plan(**options)
        with both_clusters(plan) as (source, target):
            return job_start(plan, source, target)

    def delete(self, bootstrap: str, *, again: bool = True) -> None:
        with Cluster(bootstrap) as cluster:
            request = DeleteTopicsRequest([DeleteTopicState(self.topic)], [self.topic], 10_000)
            assert cluster.call(request).responses[0].error_code == 0
            if again:
                create_topics(cluster, [NewTopic(self.topic, 1)])


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    with Broker(settings=_SETTINGS) as source, Broker(settings=_SETTINGS) as target:
        yield source.address, target.address


@pytest.fixture
def scene(addresses: tuple[str, str]) -> Scene:
    return Scene(*addresses)


def test_a_mirror_resumes_at_its_position(scene: Scene) -> None:
    found = scene.job_start().topics[scene.topic]
    assert (dict(found.begun.position.offsets), found.is_new) == ({0: 3}, False)
    another = scene.job_start(name="another", begin="latest").topics[scene.topic]
    assert (dict(another.begun.position.offsets), another.is_new) == ({0: 5}, True)


def test_what_was_deleted_before_it_was_mirrored_is_an_error_or_is_recorded(scene: Scene) -> None:
    with Cluster(scene.source) as source:
        wanted = DeleteRecordsTopic(scene.topic, [DeleteRecordsPartition(0, 4)])
        source.call(DeleteRecordsRequest([wanted], 10_000), node_id=source.leader(TopicPartition(scene.topic, 0)))
    with pytest.raises(LostRange, match=f"partition 0 offsets 3 to 3.* in topic kwire-mirror-{scene.topic} of --to"):
        scene.job_start()
    begun = scene.job_start(on_gap="record").topics[scene.topic].begun
    assert ([str(it) for it in begun.gaps], dict(begun.position.offsets)) == (["partition 0 offsets 3 to 3"], {0: 4})


def test_a_topic_that_was_made_again_on_either_side_is_another(addresses: tuple[str, str]) -> None:
    scene = Scene(*addresses)
    scene.delete(scene.source)
    with pytest.raises(PipelineError, match="deleted and created again since the mirror was written"):
        scene.job_start()
    scene = Scene(*addresses)
    scene.delete(scene.target)
    with pytest.raises(PipelineError, match="at --to was deleted and created again"):
        scene.job_start()
    scene.delete(scene.target, again=False)
    with pytest.raises(PipelineError, match="at --to was deleted since"):
        scene.job_start()


def test_a_topic_keeps_its_name_at_the_target(scene: Scene) -> None:
    with pytest.raises(PipelineError, match=f"writes topic {scene.topic} to {scene.topic}, not to x.{scene.topic}"):
        scene.job_start(rename="x.{topic}")


def test_the_way_back_is_refused_by_what_the_mirror_has_written_down(scene: Scene) -> None:
    back = scene.plan(source=scene.target, target=scene.source)
    with both_clusters(back) as (source, target), pytest.raises(Cycle, match=f"as kwire-mirror-{scene.topic} says"):
        job_start(back, source, target)


# The command.


def mirror(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", "mirror", *arguments])


def refused(*arguments: str) -> str:
    """Returns the error's only line."""
    done = mirror(*arguments)
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_dry_run_shows_what_would_be_made_and_makes_nothing(scene: Scene) -> None:
    flags = ("mirror", scene.topic, "--from", scene.source, "--to", scene.target, "--dry-run")
    (described,) = Prompt(["pipeline"]).json(*flags, "--rename", "one.{topic}")
    check_all_keys("pipeline mirror", [described])
    with Cluster(scene.source) as source, Cluster(scene.target) as target:
        name = f"{source.cluster_id}-{target.cluster_id}"
        origin = f"{source.cluster_id}/{scene.topic}"
        assert {it.name for it in target.metadata(None).topics}.isdisjoint(
            {f"one.{scene.topic}", described["kept_topic"]}
        )
    assert (described["name"], described["kept_topic"]) == (name, f"kwire-mirror-{name}")
    assert described["topics"][scene.topic] == {
        "target": f"one.{scene.topic}",
        "start": {"0": 0},
        "unread": {"0": 5},
        "lost": [],
        "create": True,
        "partitions": 1,
        "set": {"retention.ms": "1000000"},
        "reset": [],
        "origins": [origin],
    }
    assert described["delivery"] == "at least once"


def test_a_plan_as_people_see_it(addresses: tuple[str, str], snapshot: Snapshot) -> None:
    scene = Scene(*addresses, topic="orders")
    with Cluster(scene.source) as source, Cluster(scene.target) as target:
        clusters = {str(source.cluster_id): "CLUSTER-ONE", str(target.cluster_id): "CLUSTER-TWO"}
    prompt = Prompt(["pipeline"], renamed={scene.source: "one:9092", scene.target: "two:9092", **clusters})
    flags = ("mirror", "orders", "--from", scene.source, "--to", scene.target, "--dry-run")
    prompt(*flags, "--rename", "one.{topic}")
    prompt(*flags, "--name", "orders", "--no-groups", "--exactly-once")
    snapshot("pipeline-mirror", prompt.transcript)


def test_bad_input_and_clusters_that_are_not_there_are_one_line(scene: Scene) -> None:
    here = ("--from", scene.source, "--to", scene.target)
    for mode in ((), ("--dry-run",)):
        assert "no topic is named" in refused(*here, *mode)
        assert "topic nonsense not found at" in refused("nonsense", *here, *mode)
        assert "all topics would become one" in refused(scene.topic, *here, "--rename", "x", *mode)
        assert f"--from {NOBODY}: cannot reach" in refused("t", "--from", NOBODY, "--to", scene.target, *mode)
        assert f"--to {NOBODY}: cannot reach" in refused("t", "--from", scene.source, "--to", NOBODY, *mode)
        assert "is not HOST:PORT" in refused("t", "--from", "nonsense", "--to", NOBODY, *mode)
        assert "to itself" in refused(scene.topic, "--from", scene.source, "--to", scene.source, *mode)


def test_no_spark_is_loaded_for_a_dry_run(scene: Scene) -> None:
    program = (
        "import sys\nfrom kwire.cli import main\n"
        f"try: main(['pipeline', 'mirror', '{scene.topic}', '--from', '{scene.source}', '--to', '{scene.target}', "
        "'--dry-run'])\n"
        "except SystemExit as end: assert not end.code, end\n"
        "assert 'pyspark' not in sys.modules and 'py4j' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, stdout=subprocess.DEVNULL)
