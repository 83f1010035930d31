"""`kwire dlq` on a broker in this process: its output, what it sends, and the state after a kill at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, Self

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.records import Record
from kwire_protocol.wire import Buffer

from devtools.suite.snapshots import Snapshot
from kwire.admin.dead_letters import originals, redriving, topics
from kwire.admin.dead_letters.letters import Selection, Span, read_span
from kwire.admin.dead_letters.redriving import COUNT_HEADER, Redrive, RedriveOptions
from kwire.cli.dlq import redriving as cli_redriving
from kwire.cli.reaching import Reach
from kwire.client.cluster import Cluster, CoordinatorKind, TopicPartition
from kwire.client.errors import ClientError
from kwire.client.offsets import LATEST, IsolationLevel, list_offsets
from kwire.client.producing import Producer
from kwire.client.topics import NewTopic, create_topics
from kwire.client.transport import Address, Transport, connect_plain_text
from kwire.metadata.image import ConfigResourceType
from kwire.pipeline.delivery.partitioning import partition_of
from kwire.testing import Broker
from testkit.basics.waiting import eventually
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import Prompt, of_type
from testkit.fakes.letter_scene import COUNTED, REJECTED, copy, reference
from testkit.raw.client import RawClient
from testkit.raw.share_requests import REJECT, ShareRequests, acquired
from testkit.raw.share_states import share_partition

SETTINGS: Final = {
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
ENABLED: Final = {"errors.deadletterqueue.group.enable": "true"}
AGAIN: Final = (COUNT_HEADER, b"1")
_numbers = count(1)


@attrs.define(eq=False)
class Scene:
    """A broker with topics of its own: `orders` with two partitions, and `dlq` with letters about it."""

    broker: Broker
    cluster: Cluster
    orders: str
    dlq: str
    client: Prompt = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.client = Prompt(["dlq"], ["--bootstrap-server", self.broker.address])

    @classmethod
    @contextmanager
    def at_broker(cls, broker: Broker, name: str) -> Iterator[Self]:
        with Cluster(broker.address) as cluster:
            it = cls(broker, cluster, f"orders-{name}", f"dlq.{name}")
            it.create(it.orders, 2)
            create_topics(cluster, [NewTopic(it.dlq, 2, configs=ENABLED)])
            yield it

    def at(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.orders, partition)

    def write(self, at: TopicPartition, *records: Record) -> None:
        Producer(self.cluster).produce({at: records})

    def letters(self, *records: Record, partition: int = 0) -> None:
        self.write(TopicPartition(self.dlq, partition), *records)

    def read(self, at: TopicPartition, start: int = 0) -> list[Record]:
        """Returns what a reader of committed records sees."""
        committed = IsolationLevel.READ_COMMITTED
        end = list_offsets(self.cluster, at.topic, LATEST, isolation_level=committed)[at.partition]
        return [*read_span(self.cluster, Span(at, start, end))]

    def values(self, at: TopicPartition) -> list[bytes | None]:
        return [it.value for it in self.read(at)]

    def create(self, name: str, partitions: int = 1, **configs: str) -> str:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        create_topics(self.cluster, [NewTopic(name, partitions, configs=settings)])
        return name

    def redrive(self, *arguments: str, code: int = 0) -> dict[tuple[str, str | None], int]:
        """Redrives, and returns the number of letters by result, and reason or topic."""
        rows = self.client.json("redrive", self.dlq, *arguments, code=code)
        return {(it["result"], it["reason"] or it["to"]): it["letters"] for it in rows}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def scene(broker: Broker) -> Iterator[Scene]:
    with Scene.at_broker(broker, str(next(_numbers))) as it:
        yield it


# Shown


def test_lists_of_letters_as_people_see_them(broker: Broker, snapshot: Snapshot) -> None:
    with Scene.at_broker(broker, "listed") as scene:
        scene.client("list", "--topic", scene.dlq)
        some_letters(scene)
        scene.client("list", "--topic", scene.dlq)
        snapshot("dlq-list", scene.client.transcript)


def some_letters(scene: Scene) -> None:
    scene.letters(reference(scene.at(), 0, timestamp_ms=2_000), reference(scene.at(1), 3, timestamp_ms=3_000))
    scene.letters(reference(scene.at(), 1, timestamp_ms=1_000), partition=1)
    scene.letters(reference(TopicPartition("a\x1b", 0), 1, group="h"), Record(value=b"no letter"))


def test_letters_are_counted_by_group_and_topic_of_origin(scene: Scene) -> None:
    some_letters(scene)
    rows = scene.client.json("list", "--topic", scene.dlq)
    check_all_keys("dlq list", rows)
    assert rows == [
        {
            "type": "topic",
            "topic": scene.dlq,
            "exists": True,
            "group_ids": [],
            "letters": 4,
            "other_records": 1,
        },
        {
            "type": "letters",
            "topic": scene.dlq,
            "group_id": "g",
            "origin_topic": scene.orders,
            "letters": 3,
            "redriven": 0,
            "first_timestamp_ms": 1_000,
            "last_timestamp_ms": 3_000,
        },
        {
            "type": "letters",
            "topic": scene.dlq,
            "group_id": "h",
            "origin_topic": "a\x1b",
            "letters": 1,
            "redriven": 0,
            "first_timestamp_ms": 1_000,
            "last_timestamp_ms": 1_000,
        },
    ]


def test_origins_beyond_a_number_are_counted_together(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "MAX_COUNTS", 2)
    scene.letters(*(reference(TopicPartition(f"t{index}", 0), 0) for index in (0, 1, 2, 3, 1)))
    counted = of_type("letters", scene.client.json("list", "--topic", scene.dlq))
    assert [(it["origin_topic"], it["letters"]) for it in counted] == [(None, 2), ("t0", 1), ("t1", 2)]


def test_topics_are_found_by_their_own_configuration_and_by_that_of_groups(scene: Scene) -> None:
    group, missing = f"group-of-{scene.dlq}", f"{scene.dlq}.missing"
    configure(scene, group, missing)
    join = ShareGroupHeartbeatRequest(group, "a member", 0, None, [scene.orders])
    coordinator = scene.cluster.connection(scene.cluster.coordinator(CoordinatorKind.GROUP, group))
    eventually(lambda: coordinator.call(join).error_code == ErrorCode.NONE, "the group is there")
    listed = {it["topic"]: it for it in of_type("topic", scene.client.json("list"))}
    assert (listed[scene.dlq]["exists"], listed[scene.dlq]["group_ids"]) == (True, [])
    assert (listed[missing]["exists"], listed[missing]["group_ids"]) == (False, [group])
    assert scene.orders not in listed
    assert f"share group {group} names dead-letter topic {missing}, which does not exist" in scene.client.stderr


def letters_to_show(scene: Scene) -> None:
    scene.letters(
        reference(scene.at(), 0),
        Record(value=b"no letter"),
        copy(scene.at(1), 7, b"\x1b[2J", b"x" * 10_000, ("mine", b"\x00"), group="h\x07", reason=COUNTED),
    )


def test_letters_as_people_see_them(broker: Broker, snapshot: Snapshot) -> None:
    with Scene.at_broker(broker, "shown") as scene:
        scene.client("show", scene.dlq)
        letters_to_show(scene)
        scene.client("show", scene.dlq)
        scene.client("show", scene.dlq, "--limit", "1", "--max-value-bytes", "5", "--group", "h\x07")
        scene.redrive("--partition", "0", "--offset", "2")
        scene.letters(copy(scene.at(), 8, None, b"v" * 41, group="g" * 100))
        scene.client.comment("one was sent again, and another group has a letter")
        scene.client("show", scene.dlq, "--limit", "2")
        scene.client("show", scene.dlq, "--origin-offset", "8")
        snapshot("dlq-show", scene.client.transcript)


def test_letters_are_shown_with_their_origin(scene: Scene) -> None:
    letters_to_show(scene)
    both = scene.client.json("show", scene.dlq)
    assert "records that are no dead letters: 1" in scene.client.stderr
    names = ("offset", "group_id", "origin_topic", "origin_partition", "origin_offset", "reason", "is_copy", "value")
    assert [both[0][name] for name in names] == [0, "g", scene.orders, 0, 0, REJECTED.decode(), False, None]
    long = copy(scene.at(), 0, b"k" * 5_000, b"\xff", ("mine", b"h" * 5_000))
    scene.letters(long)
    check_all_keys("dlq show", scene.client.json("show", scene.dlq))
    (only,) = scene.client.json("show", scene.dlq, "--partition", "0", "--offset", "2")
    assert len(only.pop("value")) == 4096
    assert only == {
        "type": "letter",
        "topic": scene.dlq,
        "partition": 0,
        "offset": 2,
        "timestamp_ms": 1_000,
        "group_id": "h\x07",
        "origin_topic": scene.orders,
        "origin_partition": 1,
        "origin_offset": 7,
        "delivery_count": 1,
        "reason": COUNTED.decode(),
        "redriven": False,
        "is_copy": True,
        "key": "G1sySg==",
        "key_size_bytes": 4,
        "key_encoding": "base64",
        "value_size_bytes": 10_000,
        "value_cut": True,
        "headers": [{"name": "mine", "value": "AA==", "value_size_bytes": 1, "value_encoding": "base64"}],
    }


def test_letters_are_chosen_and_limited(scene: Scene) -> None:
    scene.letters(*(reference(scene.at(index % 2), index, timestamp_ms=1_000 * index) for index in range(1, 7)))
    scene.letters(reference(scene.at(), 7, group="h", timestamp_ms=9_000), partition=1)

    def shown(*arguments: str) -> list[int]:
        return [it["origin_offset"] for it in scene.client.json("show", scene.dlq, *arguments)]

    assert shown() == [1, 2, 3, 4, 5, 6, 7]
    assert shown("--group", "h") == [7]
    assert shown("--partition", "0", "--offset", "1", "--offset", "4") == [2, 5]
    assert shown("--since", "3000", "--until", "5000") == [3, 4]
    assert shown("--origin-topic", scene.orders, "--origin-partition", "1") == [1, 3, 5]
    assert shown("--origin-offset", "6") == [6]
    assert shown("--reason", "REJECTED by") == [1, 2, 3, 4, 5, 6, 7]
    assert shown("--reason", "exceeded") == []
    assert shown("--group", "x") == []
    assert shown("--limit", "2") == [1, 2]
    assert "there are more letters: raise --limit" in scene.client.stderr
    assert len(shown("--limit", "7")) == 7
    assert scene.client.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "DLQ", "--offset", "1"], "--offset is one of a partition: name it with --partition"),
        (["show", "DLQ", "--since", "soon"], "--since 'soon' is no moment"),
        (["redrive", "DLQ"], "say which letters: by options such as --group or --offset, or --all"),
        (["redrive", "DLQ", "--all", "--group", "g"], "--all is all letters"),
        (["redrive", "DLQ", "--all", "--to", "DLQ"], "--to is the dead-letter topic itself"),
        (["redrive", "DLQ", "--all", "--rate", "0"], "0.0 is not in the range"),
    ],
)
def test_options_that_make_no_sense_are_rejected(scene: Scene, arguments: list[str], message: str) -> None:
    assert message in scene.client(*(it.replace("DLQ", scene.dlq) for it in arguments), code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "nope"], "Error: there is no topic 'nope'\n"),
        (["list", "--topic", "nope"], "Error: there is no topic 'nope'\n"),
        (["redrive", "nope", "--all"], "Error: there is no topic 'nope'\n"),
        (["redrive", "DLQ", "--all", "--to", "nope"], "Error: there is no topic 'nope'\n"),
        (["show", "DLQ", "--partition", "2"], "Error: topic 'DLQ' has no partition 2, but 2 of them, from 0\n"),
        (
            ["show", "DLQ", "--partition", "0", "--offset", "1"],
            "Error: offset 1 of DLQ-0 not found: it has the offsets 0 to 0\n",
        ),
        (["redrive", "DLQ", "--partition", "1", "--offset", "0"], "Error: offset 0 of DLQ-1 not found: it is empty\n"),
    ],
)
def test_what_does_not_exist_is_reported_in_one_line(scene: Scene, arguments: list[str], message: str) -> None:
    scene.letters(reference(scene.at(), 0))
    assert scene.client(*(it.replace("DLQ", scene.dlq) for it in arguments), code=1).stderr == message.replace(
        "DLQ", scene.dlq
    )


class Killed(BaseException):
    """The process ends here."""


@attrs.define(eq=False)
class Life:
    """A client that is killed at its n-th request: before that is sent, or after, without reading the answer."""

    last: int
    is_sent: bool
    requests: int = 0
    death: Callable[[], BaseException] = Killed

    def connect(self, address: Address, timeout_s: float) -> Transport:
        return Mortal(connect_plain_text(address, timeout_s), self)


@attrs.define(eq=False)
class Mortal:
    socket: Transport
    life: Life

    def settimeout(self, value: float | None) -> None:
        self.socket.settimeout(value)

    def sendall(self, data: Buffer) -> None:
        self.life.requests += 1
        if self.life.requests < self.life.last or (self.life.requests == self.life.last and self.life.is_sent):
            self.socket.sendall(data)
        if self.life.requests >= self.life.last:
            raise self.life.death()

    def recv_into(self, buffer: memoryview) -> int:
        return self.socket.recv_into(buffer)

    def close(self) -> None:
        self.socket.close()


# Sent again


def test_what_a_share_group_gave_up_is_sent_again_and_again(scene: Scene) -> None:
    group = f"group-of-{scene.dlq}"
    scene.write(scene.at(), Record(timestamp=5, key=b"k", value=b"v", headers=[("mine", b"1")]))
    configure(scene, group, scene.dlq)
    with share_partition(scene.broker.address, group, scene.orders) as state:
        assert state.initialize() == ErrorCode.NONE
    reject(scene, group, 0)
    assert scene.redrive("--group", group) == {("sent", scene.orders): 1}
    _, again = scene.read(scene.at())
    assert again[1:] == (5, b"k", b"v", (("mine", b"1"), AGAIN))
    assert [it["redriven"] for it in scene.client.json("show", scene.dlq)] == [True]
    reject(scene, group, 1)
    assert scene.redrive("--all") == {("sent", scene.orders): 1, ("skipped", "sent by an earlier redrive"): 1}
    *_, twice = scene.read(scene.at())
    assert twice.headers == (("mine", b"1"), (COUNT_HEADER, b"2"))


def test_a_copied_record_goes_to_its_partition_as_it_was(scene: Scene) -> None:
    scene.letters(
        copy(scene.at(1), 7, b"k", None, ("mine", b"1"), (COUNT_HEADER, b"9"), timestamp_ms=77),
        copy(scene.at(0), 8, None, b"v", (COUNT_HEADER, b"x"), timestamp_ms=78),
    )
    assert scene.redrive("--all") == {("sent", scene.orders): 2}
    assert [it[1:] for it in scene.read(scene.at(1))] == [(77, b"k", None, (("mine", b"1"), (COUNT_HEADER, b"10")))]
    assert [it[1:] for it in scene.read(scene.at(0))] == [(78, None, b"v", (AGAIN,))]


def test_records_go_to_another_topic_by_their_key(scene: Scene) -> None:
    other = scene.create(f"{scene.orders}-other", 3)
    keys = [b"%d" % index for index in range(20)]
    scene.letters(*(copy(scene.at(1), index, key, b"v") for index, key in enumerate(keys)))
    scene.letters(copy(scene.at(1), 99, None, b"without a key"))
    assert scene.redrive("--all", "--to", other) == {("sent", other): 21}
    assert scene.read(scene.at(1)) == []
    for index in range(3):
        expected = [key for key in keys if partition_of(key, 3) == index] + ([None] if index == 1 else [])
        assert [it.key for it in scene.read(TopicPartition(other, index))] == expected


def test_a_letter_is_sent_once_unless_again_is_given(scene: Scene) -> None:
    scene.letters(*(copy(scene.at(), index, b"k", b"%d" % index) for index in range(5)))
    assert scene.redrive("--partition", "0", "--offset", "3") == {("sent", scene.orders): 1}
    assert scene.redrive("--origin-offset", "1") == {("sent", scene.orders): 1}
    assert scene.redrive("--all", "--limit", "2") == {
        ("skipped", "sent by an earlier redrive"): 2,
        ("sent", scene.orders): 2,
    }
    assert scene.redrive("--all") == {("skipped", "sent by an earlier redrive"): 4, ("sent", scene.orders): 1}
    assert scene.redrive("--all") == {("skipped", "sent by an earlier redrive"): 5}
    assert scene.values(scene.at()) == [b"3", b"1", b"0", b"2", b"4"]
    assert scene.redrive("--all", "--again") == {("sent", scene.orders): 5}
    assert scene.values(scene.at())[5:] == [b"0", b"1", b"2", b"3", b"4"]


def test_redrives_as_people_see_them(broker: Broker, snapshot: Snapshot) -> None:
    with Scene.at_broker(broker, "redriven") as scene:
        scene.client("redrive", scene.dlq, "--all")
        scene.letters(copy(scene.at(), 0, b"k", b"v"), copy(TopicPartition("no\x1bpe", 0), 0, b"k", b"v"))
        scene.letters(*(copy(scene.at(), index, b"k", b"v") for index in (1, 2)))
        scene.client("redrive", scene.dlq, "--all", "--dry-run", code=1)
        scene.client("redrive", scene.dlq, "--all", "--limit", "3", code=1)
        scene.client("redrive", scene.dlq, "--all", code=1)
        snapshot("dlq-redrive", scene.client.transcript)


def test_a_dry_run_changes_nothing(scene: Scene) -> None:
    scene.letters(copy(scene.at(), 0, b"k", b"v"), copy(TopicPartition("nope", 0), 0, b"k", b"v"))
    before = {it.name for it in scene.cluster.metadata(None).topics}
    planned = scene.client.json("redrive", scene.dlq, "--all", "--dry-run", code=1)
    check_all_keys("dlq redrive", planned)
    assert [(it["result"], it["letters"], it["to"], it["executed"]) for it in planned] == [
        ("sent", 1, scene.orders, False),
        ("failed", 1, "nope", False),
    ]
    assert scene.read(scene.at()) == []
    assert {it.name for it in scene.cluster.metadata(None).topics} == before
    assert scene.redrive("--all", code=1)["sent", scene.orders] == 1
    assert scene.redrive("--all", "--dry-run", code=1)["skipped", "sent by an earlier redrive"] == 1


def test_letters_whose_record_is_gone_are_reported(scene: Scene) -> None:
    scene.write(scene.at(), *(Record(timestamp=5, value=b"%d" % index) for index in range(4)))
    scene.letters(
        reference(scene.at(), 9),
        reference(scene.at(), 2),
        reference(scene.at(7), 0),
        reference(TopicPartition("nope", 0), 0),
        copy(scene.at(), 9, None, b"copied"),
        Record(value=b"no letter"),
    )
    counts = scene.redrive("--all", code=1)
    place = f"skipped: {scene.dlq}-0 offset"
    gone = "its record is gone"
    assert scene.client.stderr.splitlines() == [
        f"{place} 5: no dead letter: it does not say from where it comes",
        f"{place} 0, for record {scene.orders}-0 offset 9: {gone}: it is behind the end of the log",
        f"{place} 2, for record {scene.orders}-7 offset 0: {gone}: the topic does not have the partition",
        f"{place} 3, for record nope-0 offset 0: {gone}: the topic does not exist",
    ]
    assert (counts["sent", scene.orders], sum(counts.values())) == (2, 6)
    assert scene.values(scene.at())[4:] == [b"2", b"copied"]
    assert scene.redrive("--partition", "0", "--offset", "5", code=1) == {
        ("failed", "no dead letter: it does not say from where it comes"): 1
    }


def delete_before(scene: Scene, at: TopicPartition, offset: int) -> None:
    wanted = DeleteRecordsTopic(at.topic, [DeleteRecordsPartition(at.partition, offset)])
    response = scene.cluster.call(DeleteRecordsRequest([wanted], 10_000), node_id=scene.cluster.leader(at))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_records_and_letters_that_were_deleted_are_passed_over(scene: Scene) -> None:
    scene.write(scene.at(), *(Record(timestamp=5, value=b"%d" % index) for index in range(4)))
    scene.letters(*(reference(scene.at(), index) for index in range(4)))
    delete_before(scene, scene.at(), 2)
    assert scene.redrive("--all", code=1) == {
        ("sent", scene.orders): 2,
        ("skipped", "its record is gone: it is before the start of the log"): 2,
    }
    at = TopicPartition(scene.dlq, 0)
    delete_before(scene, at, 1)
    # A reader that began before the deleted records continues after them.
    assert [it.offset for it in read_span(scene.cluster, Span(at, 0, 4))] == [1, 2, 3]


def test_a_broker_that_is_lost_in_the_midst_is_reported_with_what_was_sent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.letters(*(copy(scene.at(), index, b"k", b"%d" % index) for index in range(1_200)))

    life = Life(1_000_000, is_sent=False, death=lambda: ConnectionResetError(104, "Connection reset by peer"))

    def connect(reach: Reach) -> Cluster:
        return Cluster(reach.bootstrap, timeout_s=0.2, connect=life.connect)

    def progress(done: int, _: int) -> None:
        if done == 1_100:
            life.last = 0

    @contextmanager
    def bar(_: str) -> Iterator[Any]:
        yield progress

    monkeypatch.setattr(Reach, "cluster", connect)
    monkeypatch.setattr(cli_redriving, "counting_bar", bar)
    assert scene.redrive("--all", code=1) == {("sent", scene.orders): 1_000}
    hint, error = scene.client.stderr.splitlines()
    assert hint == "run the same command again to continue: what was sent is not sent twice"
    assert "Connection reset by peer" in error
    monkeypatch.undo()
    assert scene.redrive("--all")["sent", scene.orders] == 200
    assert scene.values(scene.at()) == [b"%d" % index for index in range(1_200)]


def test_records_that_are_refused_do_not_hold_up_the_others(scene: Scene) -> None:
    small = scene.create(f"{scene.orders}-small", max_message_bytes="300")
    compacted = scene.create(f"{scene.orders}-compacted", cleanup_policy="compact")
    to_small, to_compacted = TopicPartition(small, 0), TopicPartition(compacted, 0)
    letters = [copy(to_small, index, b"k", b"%d" % index * (999 if index in (3, 7) else 1)) for index in range(10)]
    letters += [copy(to_compacted, index, None if index == 2 else b"%d" % index, b"v") for index in range(4)]
    letters += [copy(scene.at(), 0, None, b"v"), copy(scene.at(5), 0, None, b"v")]
    scene.letters(*letters)
    assert scene.redrive("--all", code=1) == {
        ("sent", small): 8,
        ("sent", compacted): 3,
        ("sent", scene.orders): 1,
        ("failed", "MESSAGE_TOO_LARGE"): 2,
        ("failed", "INVALID_RECORD"): 1,
        ("failed", "the topic does not have partition 5"): 1,
    }
    assert scene.values(to_small) == [b"%d" % index for index in range(10) if index not in (3, 7)]
    assert [it.key for it in scene.read(to_compacted)] == [b"0", b"1", b"3"]
    assert sum(scene.redrive("--all", code=1).values()) == len(letters)
    assert len(scene.read(to_small)) == 8


def test_many_records_are_read_from_where_they_were_in_parts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.write(scene.at(), *(Record(timestamp=5, value=b"%d" % index * 100) for index in range(40)))
    wanted = [39, *range(0, 39, 3)]
    scene.letters(*(reference(scene.at(), offset) for offset in wanted))
    monkeypatch.setattr(originals, "MAX_BYTES", 450)
    monkeypatch.setattr(originals, "_NEAR", 5)
    assert scene.redrive("--all") == {("sent", scene.orders): len(wanted)}
    assert [it.value for it in scene.read(scene.at(), 40)] == [b"%d" % offset * 100 for offset in wanted]


def test_records_go_no_faster_than_they_may(scene: Scene) -> None:
    @attrs.define(eq=False)
    class Clock:
        now_s: float = 0.0

        def monotonic(self) -> float:
            return self.now_s

        def sleep(self, seconds: float) -> None:
            assert seconds < 1, "it is behind"
            self.now_s += seconds

    scene.letters(*(copy(scene.at(), index, b"k", b"v") for index in range(50)))
    clock = Clock()
    with Cluster(scene.broker.address, clock=clock) as cluster:
        options = RedriveOptions(rate_per_s=10)
        assert Redrive(cluster, scene.dlq, Selection(), options, lambda: 0).run().sent == 50
    assert 4.5 < clock.now_s < 5.5


def test_another_redrive_of_the_topic_ends_the_first(scene: Scene) -> None:
    scene.letters(*(copy(scene.at(), index, b"k", b"%d" % index) for index in range(1_200)))

    def progress(done: int, _: int) -> None:
        if done == 1_100:
            assert scene.redrive("--all") == {
                ("skipped", "sent by an earlier redrive"): 1_000,
                ("sent", scene.orders): 200,
            }

    work = Redrive(scene.cluster, scene.dlq, Selection(), RedriveOptions(), lambda: 0, progress)
    with pytest.raises(ClientError, match="has ended: another one has begun"):
        work.run()
    assert work.report.sent == 1_000
    assert scene.values(scene.at()) == [b"%d" % index for index in range(1_200)]


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_kill_at_any_request_loses_and_doubles_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    monkeypatch.setattr(redriving, "MAX_LETTERS", 2)
    found_half_done = 0
    for last in count(1):
        orders = scene.create(f"{scene.orders}-{last}", 2)
        dlq = scene.create(f"{scene.dlq}-{last}")
        at = [TopicPartition(orders, index) for index in (0, 1)]
        scene.write(at[1], Record(timestamp=5, value=b"original"))
        letters = [copy(at[index % 2], index, b"k", b"%d" % index) for index in range(4)]
        scene.write(TopicPartition(dlq, 0), *letters, reference(at[1], 0))
        life = Life(last, is_sent)
        try:
            with Cluster(scene.broker.address, connect=life.connect) as cluster:
                Redrive(cluster, dlq, Selection(), RedriveOptions(), lambda: 0).run()
            break
        except Killed:
            pass
        found = sum(len(scene.read(it)) for it in at) - 1
        found_half_done += 0 < found < 5
        with Cluster(scene.broker.address) as cluster:
            work = Redrive(cluster, dlq, Selection(), RedriveOptions(), lambda: 0)
            assert work.run().is_whole
            assert sum(work.report.counts.values()) == 5
        assert [scene.values(it) for it in at] == [[b"0", b"2"], [b"original", b"1", b"3", b"original"]], last
    assert last > 20
    assert found_half_done > 5


def configure(scene: Scene, group: str, dead_letter_topic: str) -> None:
    """Sets the group's dead-letter topic, for letters without the record."""
    configs = [AlterableConfig("errors.deadletterqueue.topic.name", 0, dead_letter_topic)]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(ConfigResourceType.GROUP, group, configs)])
    assert scene.cluster.call(request).responses[0].error_code == ErrorCode.NONE


def reject(scene: Scene, group: str, offset: int) -> None:
    """A member rejects the only unconsumed record of partition 0, and there is a letter."""
    before = len(scene.read(TopicPartition(scene.dlq, 0)))
    address = scene.broker.address
    with share_partition(address, group, scene.orders) as state, RawClient(address) as client:
        member = ShareRequests(f"member-{offset}", state.topic_id, group)
        fetched = client.call(member.fetch_request([0], max_wait_ms=5_000), member.version)
        assert acquired(fetched) == [(offset, offset, 1)]
        member.epoch += 1
        acked = client.call(member.acknowledge_request((offset, offset, REJECT)), member.version)
        assert acked.error_code == ErrorCode.NONE
    eventually(lambda: len(scene.read(TopicPartition(scene.dlq, 0))) > before, "the letter is there")
