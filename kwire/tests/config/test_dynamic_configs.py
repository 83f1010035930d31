"""Every configuration that may change while the broker runs, and acts in kwire, takes effect when it is changed.

The tables define how: `probe` does something and returns the result, once under the value `before` and once under
`after`; `differ` compares. Each is changed wherever it may be set: for the topic, for all brokers, for this one;
and the new value must act after a restart as well. A configuration that may change and has no row fails
`test_every_configuration_that_may_change_has_a_row`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs
import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.share_group_describe import DescribedGroup as DescribedShareGroup
from kwire_protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kwire_protocol.messages.streams_group_describe import DescribedGroup as DescribedStreamsGroup
from kwire_protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kwire_protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
)
from kwire_protocol.messages.streams_group_heartbeat import Topology as StreamsTopology
from kwire_protocol.record_batch import assign
from kwire_protocol.records import Record, build_batch, iter_records
from kwire_protocol.wire import uuid_to_text
from kwire_storage.disk.faulty_disk import FaultyDisk
from trio.testing import wait_all_tasks_blocked

from kwire.config.definition import Scope
from kwire.config.server import load_config
from kwire.config.tables.broker import broker_configs, has_effect
from kwire.config.tables.resource import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from kwire.config.tables.tls import TLS_CONFIGS
from kwire.config.tables.topic import TOPIC_CONFIGS
from kwire.logs import segment_writing
from kwire.metadata.image import ConfigResourceType
from kwire.node.broker import Broker
from kwire.peers.connecting import connect
from kwire.replicas.quotas import no_quota
from kwire.replicas.roles import Follower, role_of
from kwire.replication.connection import FetcherEnvironment
from kwire.replication.fetching import Fetcher, FetchSettings
from kwire.replication.followers import FollowedPartition, ReplicaFollowers
from kwire.runtime import workers
from kwire.runtime.processor import Timer
from testkit.basics.held_clock import Threads
from testkit.scenes.broker_in_trio import TrioClock
from testkit.scenes.dynamic_scene import CLEANER_BACKOFF_MS, RestlessTime, Scene
from testkit.scenes.partition_files import log_files
from testkit.scenes.server_in_trio import ServerInTrio, with_server
from testkit.share.probes import (
    a_letter_without_a_topic_is_written,
    a_topic_of_another_name_gets_letters,
    error_of_a_renewal,
    gets_what_was_there_before,
    how_long_a_record_is_locked_s,
    how_long_a_record_that_came_back_is_kept_s,
    how_many_records_are_in_flight,
    how_often_a_record_is_delivered,
    sees_what_is_not_committed,
    the_topic_itself_gets_letters,
    value_of_a_letter,
    which_topic_gets_a_letter,
)

TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP
FOLDERS = ("/a", "/b")
FOREVER: Final = str(2**63 - 1)
# Chores that would come in between are put off for ever.
SETTINGS = (
    f"log.cleaner.backoff.ms={CLEANER_BACKOFF_MS}",
    "log.retention.check.interval.ms=1000000000000",
    "log.flush.offset.checkpoint.interval.ms=2000000000",
    "transaction.state.log.num.partitions=1",
    "offsets.topic.num.partitions=1",
    "connections.max.idle.ms=-1",
)


class JitteryClock(TrioClock):
    """A clock that draws the largest values; a broker that starts again has a later time."""

    def __init__(self, later_ms: int) -> None:
        super().__init__()
        self._later_ms = later_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._later_ms

    def draw(self, bound: int) -> int:
        return bound - 1


@pytest.fixture
def cleaners_time(monkeypatch: pytest.MonkeyPatch) -> RestlessTime:
    restless = RestlessTime()
    monkeypatch.setattr(segment_writing, "time", restless)
    return restless


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads = Threads(workers.run)
    monkeypatch.setattr(workers, "run", threads.run)
    return threads


Probe = Callable[[Scene], Awaitable[Any]]


def unequal(before: object, after: object) -> bool:
    return before != after


@attrs.frozen
class Row:
    """`first` and `then` are what the probe finds under the values `before` and `after`, or `differ` compares them.

    `others` are configurations of the topic, or the group, without which one would see nothing.
    """

    before: str
    after: str
    probe: Probe
    differ: Callable[[Any, Any], bool] = unequal
    others: Mapping[str, str] = attrs.field(factory=dict)


def changes(first: object, then: object) -> Callable[[Any, Any], bool]:
    return lambda before, after: (before, after) == (first, then)


# What is seen of a topic's configurations


async def code_of_a_batch_without_key(scene: Scene) -> int:
    return (await scene.append(b"v", key=None)).error_code


async def codec_of_a_batch(scene: Scene) -> int:
    await scene.append(b"value")
    *_, (header, _) = scene.partition.log.batches()
    return header.attributes & 7


async def stored_bytes_of_a_batch(scene: Scene) -> int:
    words = random.Random(1).choices([b"compression", b"level", b"batch", b"record", b"topic", b"codec"], k=20_000)
    before = scene.partition.log.size_in_bytes
    assert (await scene.append(b" ".join(words), at_ms=1_700_000_000_000)).error_code == ErrorCode.NONE
    return scene.partition.log.size_in_bytes - before


async def keeps_a_tombstone(scene: Scene) -> bool:
    tombstone = str(scene.partition.log_end_offset).encode()
    await scene.append(None, key=tombstone)
    scene.roll()
    await scene.let_clean()
    await trio.sleep(60)
    await scene.append(b"v")
    scene.roll()
    await scene.let_clean()
    records = (record for _, piece in scene.partition.log.batches() for record in iter_records(piece.read()))
    return any(record.key == tombstone for record in records)


async def keeps_the_file_of_a_deleted_segment(scene: Scene) -> bool:
    log = log_files(scene.partition)
    await scene.append(b"v")
    scene.roll()
    path = log.segments[0].path
    scene.partition.delete_records_before(-1, now_ms=scene.now_ms)
    assert log.disk.exists(f"{path}.log.deleted")
    await scene.broker.housekeeping.remove_deleted()
    return log.disk.exists(f"{path}.log.deleted")


async def is_flushed_in_time(scene: Scene) -> bool:
    await scene.append(b"v")
    await trio.sleep(60)
    return scene.partition.log.recovery_point == scene.partition.log_end_offset


async def index_entries_of_ten_batches(scene: Scene) -> int:
    scene.roll()
    for _ in range(10):
        await scene.append(b"v" * 200)
    return len(log_files(scene.partition).active.index.offsets)


async def rolls_within_three_batches(scene: Scene) -> bool:
    count = len(log_files(scene.partition).segments)
    for _ in range(3):
        assert (await scene.append(b"v" * 600_000)).error_code == ErrorCode.NONE
    return len(log_files(scene.partition).segments) > count


async def rolls_within_ten_small_batches(scene: Scene) -> bool:
    scene.roll()
    count = len(log_files(scene.partition).segments)
    for _ in range(10):
        await scene.append(b"v" * 300)
    return len(log_files(scene.partition).segments) > count


async def rolls_within_a_minute(scene: Scene) -> bool:
    scene.roll()
    await scene.append(b"v")
    count = len(log_files(scene.partition).segments)
    await trio.sleep(60)
    await scene.append(b"v")
    return len(log_files(scene.partition).segments) > count


async def code_of_a_batch_of_a_thousand_bytes(scene: Scene) -> int:
    return (await scene.append(b"v" * 1000)).error_code


async def code_of_a_batch_from_the_future(scene: Scene) -> int:
    return (await scene.append(b"v", at_ms=scene.now_ms + 60_000)).error_code


async def code_of_a_batch_from_the_past(scene: Scene) -> int:
    return (await scene.append(b"v", at_ms=scene.now_ms - 60_000)).error_code


async def is_stamped(scene: Scene) -> bool:
    return (await scene.append(b"v")).log_append_time_ms == scene.now_ms


async def code_while_a_follower_is_behind(scene: Scene) -> int:
    partition = scene.partition
    partition.take_role(role_of(1, leader_id=1, leader_epoch=partition.leader().leader_epoch, replicas=[1, 2], isr=[1]))
    return (await scene.append(b"v")).error_code


async def retention_deletes_an_old_segment(scene: Scene) -> bool:
    await scene.append(b"v", at_ms=scene.now_ms - 60_000)
    scene.roll()
    await scene.append(b"v")
    return await scene.broker.housekeeping.apply_retention() > 0


async def is_cleaned(scene: Scene) -> bool:
    await scene.append(b"v")
    scene.roll()
    return await scene.let_clean() > 0


async def is_cleaned_within_a_minute(scene: Scene) -> bool:
    await scene.append(b"v")
    scene.roll()
    return await scene.let_clean(60) > 0


COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"}


async def answers_with_records_to_a_lagging_follower(scene: Scene) -> int:
    """Returns how many of three, at the same moment, have records."""
    await scene.append(b"v")
    partition = scene.partition
    epoch = partition.role.leader_epoch
    partition.take_role(role_of(1, leader_id=1, leader_epoch=epoch, replicas=[1, 2], isr=[1]))
    request = FetchRequest(replica_id=2, topics=[FetchTopic("t", partitions=[FetchPartition(0)])])
    answers = [(await scene.client.call(request, 11)).responses[0].partitions[0] for _ in range(3)]
    return sum(len(it.records) > 0 for it in answers)


async def a_lagging_follower_at_a_low_rate(scene: Scene) -> int:
    await scene.set(BROKER, "1", "leader.replication.throttled.rate", "1")
    return await answers_with_records_to_a_lagging_follower(scene)


async def fetches_of_a_lagging_follower(scene: Scene) -> int:
    """Returns how many of three are sent, at the same moment."""
    broker, partition = scene.broker, scene.partition
    epoch, key = partition.role.leader_epoch, (partition.topic_id, 0)
    partition.take_role(Follower(2, epoch))
    fetcher = Fetcher(2, 1, 1, FetchSettings(), broker.follower_quota)
    fetcher.follow(key, "t", epoch, FollowedPartition(partition, broker.partitions, lambda _: None))
    for count in range(3):
        if fetcher.next_request(broker.clock.monotonic_ms()) is None:
            return count
        batch = bytearray(build_batch([Record(value=b"v")]))
        assign(batch, 0, partition.log_end_offset, epoch)
        data = PartitionData(0, 0, 1_000_000, records=memoryview(batch))
        fetcher.received(
            FetchResponse(responses=[FetchableTopicResponse(topic_id=key[0], partitions=[data])]),
            broker.clock.monotonic_ms(),
        )
    return 3


async def fetches_at_a_low_rate(scene: Scene) -> int:
    await scene.set(BROKER, "1", "follower.replication.throttled.rate", "1")
    return await fetches_of_a_lagging_follower(scene)


TOPIC_ROWS: Final[dict[str, Row]] = {
    "cleanup.policy": Row(
        "delete", "compact", code_of_a_batch_without_key, changes(ErrorCode.NONE, ErrorCode.INVALID_RECORD)
    ),
    "compression.gzip.level": Row("1", "9", stored_bytes_of_a_batch, int.__gt__, {"compression.type": "gzip"}),
    "compression.lz4.level": Row("1", "17", stored_bytes_of_a_batch, int.__gt__, {"compression.type": "lz4"}),
    "compression.type": Row("zstd", "lz4", codec_of_a_batch, changes(4, 3)),
    "compression.zstd.level": Row("1", "22", stored_bytes_of_a_batch, int.__gt__, {"compression.type": "zstd"}),
    "delete.retention.ms": Row(FOREVER, "1000", keeps_a_tombstone, changes(True, False), COMPACTED),
    "errors.deadletterqueue.group.enable": Row("false", "true", the_topic_itself_gets_letters, changes(False, True)),
    "file.delete.delay.ms": Row("1000000", "0", keeps_the_file_of_a_deleted_segment, changes(True, False)),
    "flush.messages": Row(FOREVER, "1", is_flushed_in_time, changes(False, True)),
    "flush.ms": Row(FOREVER, "30000", is_flushed_in_time, changes(False, True)),
    "follower.replication.throttled.replicas": Row("0:2,1:1", "0:1", fetches_at_a_low_rate, changes(3, 1)),
    "leader.replication.throttled.replicas": Row("0:2,1:1", "*", a_lagging_follower_at_a_low_rate, changes(3, 1)),
    "index.interval.bytes": Row("1000000", "100", index_entries_of_ten_batches, int.__lt__),
    "internal.segment.bytes": Row("1000000", "1000", rolls_within_ten_small_batches, changes(False, True)),
    "max.compaction.lag.ms": Row(
        FOREVER,
        "1000",
        is_cleaned_within_a_minute,
        changes(False, True),
        {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"},
    ),
    "max.message.bytes": Row(
        "1000000", "100", code_of_a_batch_of_a_thousand_bytes, changes(ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE)
    ),
    "message.timestamp.after.max.ms": Row(
        "3600000", "1000", code_of_a_batch_from_the_future, changes(ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP)
    ),
    "message.timestamp.before.max.ms": Row(
        "3600000", "1000", code_of_a_batch_from_the_past, changes(ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP)
    ),
    "message.timestamp.type": Row("CreateTime", "LogAppendTime", is_stamped, changes(False, True)),
    "min.cleanable.dirty.ratio": Row("1.0", "0.0", is_cleaned, changes(False, True), {"cleanup.policy": "compact"}),
    "min.compaction.lag.ms": Row("1000000000", "0", is_cleaned, changes(False, True), COMPACTED),
    "min.insync.replicas": Row(
        "1", "2", code_while_a_follower_is_behind, changes(ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS)
    ),
    "retention.bytes": Row("-1", "1", retention_deletes_an_old_segment, changes(False, True)),
    "retention.ms": Row("-1", "1000", retention_deletes_an_old_segment, changes(False, True)),
    "segment.bytes": Row("1073741824", "1048576", rolls_within_three_batches, changes(False, True)),
    "segment.index.bytes": Row(
        "10485760", "24", rolls_within_ten_small_batches, changes(False, True), {"index.interval.bytes": "0"}
    ),
    "segment.jitter.ms": Row("0", "90000", rolls_within_a_minute, changes(False, True), {"segment.ms": "100000"}),
    "segment.ms": Row("100000", "30000", rolls_within_a_minute, changes(False, True)),
}


# What is seen of a broker's own configurations


async def cleanings_of_many_keys(scene: Scene) -> int:
    records = [Record(timestamp=scene.now_ms, key=b"%d" % number, value=b"v") for number in range(6000)]
    for begin in range(0, len(records), 1000):
        await scene.send(build_batch(records[begin : begin + 1000]))
    scene.roll()
    return await scene.let_clean()


async def seconds_that_a_cleaning_rests(scene: Scene) -> float:
    await scene.append(*[b"v" * 100] * 9000)
    scene.roll()
    rested_s = scene.cleaners_time.rested_s
    assert await scene.let_clean()
    return scene.cleaners_time.rested_s - rested_s


async def a_second_client_is_served(scene: Scene) -> bool:
    client = await scene.server.connect()
    try:
        return await scene.is_served(client)
    finally:
        await client.hang_up()
        await wait_all_tasks_blocked()


async def a_second_client_of_the_address_is_served(scene: Scene) -> bool:
    client = await scene.server.connect()
    try:
        await client.call(ApiVersionsRequest(), 0)
    except (AssertionError, trio.BrokenResourceError):
        return False
    else:
        return True
    finally:
        await client.hang_up()
        await wait_all_tasks_blocked()


async def seconds_until_many_are_served(scene: Scene) -> int:
    """Connections are counted over ten seconds, and a pause is no longer than one."""
    began = trio.current_time()
    for _ in range(12):
        client = await scene.server.connect()
        await client.call(ApiVersionsRequest(), 0)
        await client.hang_up()
    return round(trio.current_time() - began)


async def threads_of_a_recovery(scene: Scene) -> int:
    """Returns the thread count of the next start, which finds this broker dead."""
    counts: list[int] = []

    def run_all(tasks: list[Callable[[], None]], _: Callable[[], str], threads: int) -> None:
        counts.append(threads)
        for task in tasks:
            task()

    disks = {}
    for folder in scene.broker.log_dirs.dirs:
        assert isinstance(folder.disk, FaultyDisk)
        disks[folder.path] = folder.disk.kill()
    again = Broker.open(
        load_config(settings=SETTINGS, data_dirs=list(disks)),
        disks,
        TrioClock(),
        run_all=run_all,
    )
    again.close()
    (threads,) = counts
    return threads


async def an_idle_producer_is_remembered(scene: Scene) -> bool:
    producer_id = scene.partition.log_end_offset
    batch = build_batch(
        [Record(timestamp=scene.now_ms, value=b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    assert (await scene.send(batch)).error_code == ErrorCode.NONE
    await trio.sleep(1000)
    answer = await scene.client.call(DescribeProducersRequest([TopicRequest("t", [0])]), 0)
    return producer_id in {it.producer_id for it in answer.topics[0].partitions[0].active_producers}


async def a_batch_without_a_transaction_is_taken(scene: Scene) -> bool:
    batch = build_batch(
        [Record(timestamp=scene.now_ms, value=b"v")],
        producer_id=1000 + scene.partition.log_end_offset,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    answer = await scene.send(batch, transactional_id="nobody")
    return answer.error_code == ErrorCode.NONE


async def seconds_of_a_move(scene: Scene) -> float:
    """Measures a move by the broker's clock."""
    await scene.append(b"v" * 1000)
    here = scene.broker.log_dirs.find("t", 0)
    assert here is not None
    (there,) = set(FOLDERS) - {here.path}
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(there, [AlterReplicaLogDirTopic("t", [0])])])
    answer = await scene.client.call(request, 2)
    assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
    began = trio.current_time()
    while scene.broker.moves.find("t", 0) is not None:
        await trio.sleep(1)
    return trio.current_time() - began


async def connections_to_a_leader(scene: Scene) -> int:
    broker = scene.broker
    topic = f"followed-{len(broker.metadata.image.topics)}"
    await scene.client.call(CreateTopicsRequest([CreatableTopic(topic, 6, 1)]), 7)
    around = FetcherEnvironment(
        scene.server.server.processor, Timer, lambda _: None, lambda: 0, lambda _: None, lambda: 1000, "test", connect
    )
    followers = ReplicaFollowers(broker.metadata, broker.partitions, broker.in_sync, no_quota(), around, lambda _: None)
    partitions = [broker.partitions.find(topic, index) for index in range(6)]
    for partition in partitions:
        partition.take_role(Follower(2, 1))
    followers._reconcile(partitions)
    return len(followers._connections)


async def join_consumer_group(scene: Scene, *, leave: bool = False) -> ConsumerGroupHeartbeatResponse:
    """A new member joins the group "g"."""
    await scene.client.call(FindCoordinatorRequest("g"), 1)
    member_id = uuid_to_text(scene.broker.clock.uuid())
    request = ConsumerGroupHeartbeatRequest(
        "g", member_id, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    answer: ConsumerGroupHeartbeatResponse = await scene.client.call(request, 1)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    if leave:
        await scene.client.call(ConsumerGroupHeartbeatRequest("g", member_id, -1), 1)
    return answer


async def heartbeat_interval_ms(scene: Scene) -> int:
    return (await join_consumer_group(scene, leave=True)).heartbeat_interval_ms


async def silence_until_a_member_is_removed_ms(scene: Scene) -> int:
    await join_consumer_group(scene)
    (described,) = (await scene.client.call(ConsumerGroupDescribeRequest(["g"]), 1)).groups
    silent_ms = 0
    while described.members:
        await trio.sleep(1)
        silent_ms += 1000
        (described,) = (await scene.client.call(ConsumerGroupDescribeRequest(["g"]), 1)).groups
    return silent_ms


async def a_second_member_begins_an_assignment(scene: Scene) -> bool:
    await trio.sleep(20)
    await join_consumer_group(scene)
    await join_consumer_group(scene)
    (described,) = (await scene.client.call(ConsumerGroupDescribeRequest(["g"]), 1)).groups
    begins: bool = described.assignment_epoch == described.group_epoch
    return begins


async def share_heartbeat(
    scene: Scene, member_id: str, epoch: int = 0, topics: list[str] | None = None
) -> ShareGroupHeartbeatResponse:
    await scene.client.call(FindCoordinatorRequest("g"), 1)
    request = ShareGroupHeartbeatRequest("g", member_id, epoch, subscribed_topic_names=topics)
    answer: ShareGroupHeartbeatResponse = await scene.client.call(request, 1)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return answer


async def join_share_group(scene: Scene) -> str:
    """A new member joins the group "g"."""
    member_id = uuid_to_text(scene.broker.clock.uuid())
    await share_heartbeat(scene, member_id, topics=["t"])
    return member_id


async def described_share_group(scene: Scene) -> DescribedShareGroup:
    (described,) = (await scene.client.call(ShareGroupDescribeRequest(["g"]), 1)).groups
    assert isinstance(described, DescribedShareGroup)
    return described


async def share_heartbeat_interval_ms(scene: Scene) -> int:
    member_id = uuid_to_text(scene.broker.clock.uuid())
    interval_ms = (await share_heartbeat(scene, member_id, topics=["t"])).heartbeat_interval_ms
    await share_heartbeat(scene, member_id, -1)
    return interval_ms


async def silence_until_a_share_member_is_removed_ms(scene: Scene) -> int:
    await join_share_group(scene)
    silent_ms = 0
    while (await described_share_group(scene)).members:
        await trio.sleep(1)
        silent_ms += 1000
    return silent_ms


async def a_second_share_member_begins_an_assignment(scene: Scene) -> bool:
    await trio.sleep(20)
    await join_share_group(scene)
    await join_share_group(scene)
    described = await described_share_group(scene)
    return described.assignment_epoch == described.group_epoch


async def join_streams_group(scene: Scene, tasks: int = 1, **fields: Any) -> StreamsGroupHeartbeatResponse:
    """A new process joins the group "g" with an application that has this many tasks with state."""
    member_id = uuid_to_text(scene.broker.clock.uuid())
    parts = [
        Subtopology(str(it), source_topics=["t"], state_changelog_topics=[TopicInfo(f"changelog-{it}")])
        for it in range(tasks)
    ]
    request = StreamsGroupHeartbeatRequest(
        "g",
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        topology=StreamsTopology(0, parts),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=member_id,
        **fields,
    )
    answer = await scene.client.call(request, 1)
    assert isinstance(answer, StreamsGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.NONE
    return answer


async def leave_streams_group(scene: Scene, member_id: str) -> None:
    await scene.client.call(StreamsGroupHeartbeatRequest("g", member_id, -1), 0)


async def described_streams_group(scene: Scene) -> DescribedStreamsGroup:
    (described,) = (await scene.client.call(StreamsGroupDescribeRequest(["g"]), 0)).groups
    assert isinstance(described, DescribedStreamsGroup)
    return described


async def streams_heartbeat_interval_ms(scene: Scene) -> int:
    joined = await join_streams_group(scene)
    await leave_streams_group(scene, joined.member_id)
    return joined.heartbeat_interval_ms


async def silence_until_a_streams_member_is_removed_ms(scene: Scene) -> int:
    await join_streams_group(scene)
    silent_ms = 0
    while (await described_streams_group(scene)).members:
        await trio.sleep(1)
        silent_ms += 1000
    return silent_ms


async def a_second_streams_member_begins_an_assignment(scene: Scene) -> bool:
    await join_streams_group(scene)
    await trio.sleep(20)
    await join_streams_group(scene)
    await join_streams_group(scene)
    described = await described_streams_group(scene)
    return described.assignment_epoch == described.group_epoch


async def how_long_the_first_streams_member_waits_s(scene: Scene) -> int:
    joined = await join_streams_group(scene)
    waited_s = 0
    while (described := await described_streams_group(scene)).assignment_epoch != described.group_epoch:
        await trio.sleep(1)
        waited_s += 1
    await leave_streams_group(scene, joined.member_id)
    return waited_s


async def tasks_have_standbys(scene: Scene) -> bool:
    await join_streams_group(scene)
    await trio.sleep(5)  # The changelog topic is created, and the group has waited for more members.
    await join_streams_group(scene)
    await trio.sleep(5)
    await join_streams_group(scene)
    return any(it.target_assignment.standby_tasks for it in (await described_streams_group(scene)).members)


async def a_task_warms_up(scene: Scene) -> bool:
    progress: dict[str, Any] = {"task_offsets": [], "task_end_offsets": []}
    runs = await join_streams_group(scene, 2, **progress)
    while not runs.active_tasks:  # The changelog topic is created, and the group waits for more members.
        await trio.sleep(5)
        request = StreamsGroupHeartbeatRequest("g", runs.member_id, runs.member_epoch)
        runs = await scene.client.call(request, 1)
    await join_streams_group(scene, 2, **progress)
    members = (await described_streams_group(scene)).members
    await trio.sleep(60)
    return any(it.assignment.warmup_tasks for it in members)


async def acceptable_recovery_lag(scene: Scene) -> int:
    return (await join_streams_group(scene)).acceptable_recovery_lag


async def task_offset_interval_ms(scene: Scene) -> int:
    return (await join_streams_group(scene)).task_offset_interval_ms


BROKER_ROWS: Final[dict[str, Row]] = {
    "errors.deadletterqueue.auto.create.topics.enable": Row(
        "false", "true", a_letter_without_a_topic_is_written, changes(False, True)
    ),
    "errors.deadletterqueue.topic.name.prefix": Row(
        "dlq.", "letters.", a_topic_of_another_name_gets_letters, changes(False, True)
    ),
    "follower.replication.throttled.rate": Row(
        FOREVER, "1", fetches_of_a_lagging_follower, int.__gt__, {"follower.replication.throttled.replicas": "*"}
    ),
    "group.consumer.assignment.interval.ms": Row(
        "0", "10000", a_second_member_begins_an_assignment, changes(True, False)
    ),
    "group.share.assignment.interval.ms": Row(
        "0", "10000", a_second_share_member_begins_an_assignment, changes(True, False)
    ),
    "group.streams.assignment.interval.ms": Row(
        "0", "10000", a_second_streams_member_begins_an_assignment, changes(True, False)
    ),
    "leader.replication.throttled.rate": Row(
        FOREVER,
        "1",
        answers_with_records_to_a_lagging_follower,
        int.__gt__,
        {"leader.replication.throttled.replicas": "*"},
    ),
    "log.cleaner.backoff.ms": Row("1000000000000", "1000", is_cleaned, changes(False, True), COMPACTED),
    "log.cleaner.dedupe.buffer.size": Row("134217728", "1048577", cleanings_of_many_keys, int.__lt__, COMPACTED),
    "log.cleaner.io.max.bytes.per.second": Row(
        "1e300", "1000", seconds_that_a_cleaning_rests, lambda before, after: before < 100 < 900 < after, COMPACTED
    ),
    "max.connection.creation.rate": Row("1", "1000", seconds_until_many_are_served, changes(3, 0)),
    "max.connections": Row("1", "2", a_second_client_is_served, changes(False, True)),
    "max.connections.per.ip": Row("1", "2", a_second_client_of_the_address_is_served, changes(False, True)),
    "max.connections.per.ip.overrides": Row(
        "127.0.0.1:1", "127.0.0.1:2", a_second_client_of_the_address_is_served, changes(False, True)
    ),
    "num.replica.fetchers": Row("1", "2", connections_to_a_leader, changes(1, 2)),
    "num.recovery.threads.per.data.dir": Row("2", "3", threads_of_a_recovery, changes(4, 6)),
    "producer.id.expiration.ms": Row("86400000", "1000", an_idle_producer_is_remembered, changes(True, False)),
    "replica.alter.log.dirs.io.max.bytes.per.second": Row(
        FOREVER, "1", seconds_of_a_move, lambda before, after: before < 5 < 10 < after
    ),
    "transaction.partition.verification.enable": Row(
        "true", "false", a_batch_without_a_transaction_is_taken, changes(False, True)
    ),
}

GROUP_ROWS: Final[dict[str, Row]] = {
    "errors.deadletterqueue.copy.record.enable": Row("false", "true", value_of_a_letter, changes(None, b"rejected")),
    "errors.deadletterqueue.topic.name": Row(
        "dlq.a", "dlq.b", which_topic_gets_a_letter, changes(["dlq.a"], ["dlq.b"])
    ),
    "consumer.assignment.interval.ms": Row("0", "10000", a_second_member_begins_an_assignment, changes(True, False)),
    "consumer.heartbeat.interval.ms": Row("5000", "6000", heartbeat_interval_ms, changes(5000, 6000)),
    "consumer.session.timeout.ms": Row(
        "45000",
        "60000",
        silence_until_a_member_is_removed_ms,
        lambda before, after: before <= 47_000 and 59_000 < after <= 62_000,
    ),
    "kwire.share.release.delay.max.ms": Row(
        "60000",
        "10000",
        how_long_a_record_that_came_back_is_kept_s,
        lambda before, after: 30 <= before < 32 and 20 <= after < 22,
        {"kwire.share.release.delay.ms": "10000"},
    ),
    "kwire.share.release.delay.ms": Row(
        "0",
        "10000",
        how_long_a_record_that_came_back_is_kept_s,
        lambda before, after: before < 2 and 30 <= after < 32,
    ),
    "share.auto.offset.reset": Row("earliest", "latest", gets_what_was_there_before, changes(True, False)),
    "share.delivery.count.limit": Row("2", "3", how_often_a_record_is_delivered, changes(2, 3)),
    "share.isolation.level": Row(
        "read_uncommitted", "read_committed", sees_what_is_not_committed, changes(True, False)
    ),
    "share.partition.max.record.locks": Row("100", "200", how_many_records_are_in_flight, changes(100, 200)),
    "share.record.lock.duration.ms": Row(
        "15000", "25000", how_long_a_record_is_locked_s, lambda before, after: 14.9 < before < 17 and 24.9 < after < 27
    ),
    "share.renew.acknowledge.enable": Row(
        "true", "false", error_of_a_renewal, changes(ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE)
    ),
    "share.assignment.interval.ms": Row("0", "10000", a_second_share_member_begins_an_assignment, changes(True, False)),
    "share.heartbeat.interval.ms": Row("5000", "6000", share_heartbeat_interval_ms, changes(5000, 6000)),
    "share.session.timeout.ms": Row(
        "45000",
        "60000",
        silence_until_a_share_member_is_removed_ms,
        lambda before, after: before <= 47_000 and 59_000 < after <= 62_000,
    ),
    "streams.acceptable.recovery.lag": Row("5", "6", acceptable_recovery_lag, changes(5, 6)),
    "streams.assignment.interval.ms": Row(
        "0", "10000", a_second_streams_member_begins_an_assignment, changes(True, False)
    ),
    "streams.heartbeat.interval.ms": Row("5000", "6000", streams_heartbeat_interval_ms, changes(5000, 6000)),
    "streams.initial.rebalance.delay.ms": Row(
        "2000",
        "10000",
        how_long_the_first_streams_member_waits_s,
        lambda before, after: 2 <= before <= 3 and 10 <= after <= 11,
    ),
    "streams.num.standby.replicas": Row("0", "1", tasks_have_standbys, changes(False, True)),
    "streams.num.warmup.replicas": Row("0", "1", a_task_warms_up, changes(False, True)),
    "streams.session.timeout.ms": Row(
        "45000",
        "60000",
        silence_until_a_streams_member_is_removed_ms,
        lambda before, after: before <= 47_000 and 59_000 < after <= 62_000,
    ),
    "streams.task.offset.interval.ms": Row("15000", "16000", task_offset_interval_ms, changes(15_000, 16_000)),
}

DEFAULTS_OF_TOPICS: Final = {
    TOPIC_CONFIGS[name].broker_synonyms[0][0]: row
    for name, row in TOPIC_ROWS.items()
    if TOPIC_CONFIGS[name].broker_synonyms
}

OF_LISTENERS: Final = {"sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.mechanism.inter.broker.protocol"}
"""They act on listeners that this scene does not have: see kwire/tests/network/test_sasl.py, and the last one
test_client_security.py."""

OF_CLUSTERS: Final = {"unclean.leader.election.enable"}
"""It acts where there are several brokers: see kwire/tests/metadata/test_broker_lives.py."""

PLACES: Final = [
    pytest.param(resource, name, config, row, id=f"{config}-{where}")
    for resource, name, where, rows in (
        (TOPIC, "t", "topic", TOPIC_ROWS),
        (BROKER, "", "all-brokers", DEFAULTS_OF_TOPICS | BROKER_ROWS),
        (BROKER, "1", "this-broker", DEFAULTS_OF_TOPICS | BROKER_ROWS),
        (GROUP, "g", "group", GROUP_ROWS),
    )
    for config, row in rows.items()
    if (name, config) != ("1", "min.insync.replicas")  # With eligible leader replicas, all brokers have the same.
]


def test_every_configuration_that_may_change_has_a_row() -> None:
    of_topics = {name for name, definition in TOPIC_CONFIGS.items() if definition.has_effect}
    of_brokers = {
        name
        for name, definition in broker_configs().items()
        if definition.scope is not Scope.READ_ONLY and has_effect(definition)
    } - TLS_CONFIGS.keys()  # These have rows in kwire/tests/network/test_changing_tls.py.
    of_groups = {name for name, definition in GROUP_CONFIGS.items() if definition.has_effect}
    of_others = {name for name, definition in CLIENT_METRICS_CONFIGS.items() if definition.has_effect}
    assert TOPIC_ROWS.keys() | OF_CLUSTERS == of_topics
    assert DEFAULTS_OF_TOPICS.keys() | BROKER_ROWS.keys() | OF_LISTENERS | OF_CLUSTERS == of_brokers
    assert GROUP_ROWS.keys() == of_groups
    assert of_others == set(), "these need rows, and resources to set them for"


@pytest.mark.parametrize(("resource", "name", "config", "row"), PLACES)
def test_a_configuration_acts_when_it_is_changed_and_after_a_restart(
    threads: Threads,
    cleaners_time: RestlessTime,
    caplog: pytest.LogCaptureFixture,
    resource: int,
    name: str,
    config: str,
    row: Row,
) -> None:
    caplog.set_level("INFO", "kwire")
    disks = {path: FaultyDisk() for path in FOLDERS}
    found: list[Any] = []

    async def changed_at_run_time(scene: Scene) -> None:
        for other, value in row.others.items():
            await scene.set(*((GROUP, "g") if resource == GROUP else (TOPIC, "t")), other, value)
        for value in (row.before, row.after):
            await scene.set(resource, name, config, value)
            found.append(await row.probe(scene))

    async def restarted(scene: Scene) -> None:
        found.append(await row.probe(scene))

    for number, scenario in enumerate((changed_at_run_time, restarted)):

        async def in_scene(server: ServerInTrio, scenario: Callable[[Scene], Awaitable[None]] = scenario) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(threads.hold_the_clock)
                await scenario(Scene(server, await server.connect(), caplog, cleaners_time))
                nursery.cancel_scope.cancel()

        with_server(in_scene, settings=SETTINGS, disks=disks, wall_clock=JitteryClock(number * 86_400_000))
    before, after, after_restart = found
    assert row.differ(before, after), (before, after)
    assert row.differ(before, after_restart), (before, after_restart)
