"""A broker whose disk is full: the errors that clients get, and how it continues."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_topics import TopicRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicState as DeleteTopic
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.config import LogConfig
from kwire_storage.log.log import Log

from kwire.config.server import load_config
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.log import FileMetadataLog
from kwire.metadata.records import encode_record
from kwire.node.broker import Broker
from kwire.node.running import StartError, open_broker
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once
from testkit.raw.simple_requests import find_coordinator, produce
from testkit.scenes.broker_in_trio import InTrio, with_broker
from testkit.scenes.partition_files import at_hand, log_files
from testkit.storage.small_disk import SmallDisk

RESERVE = 1 << 17
ROOM = 10 * RESERVE
FULL = "is full"
ROOM_AGAIN = "there is room again"

Scenario = Callable[[InTrio, SmallDisk], Awaitable[None]]


def on_a_small_disk(scenario: Scenario, *, reserve_bytes: int = RESERVE, coordinates: bool = True) -> SmallDisk:
    disk = SmallDisk(ROOM)

    async def run(it: InTrio) -> None:
        it.create_topic("t", 1)
        await scenario(it, disk)

    with_broker(run, settings=[f"kwire.log.reserve.bytes={reserve_bytes}"], disk=disk, coordinates=coordinates)
    return disk


async def produced(it: InTrio, size: int = 10, *, topic: str = "t") -> int:
    """Returns the error code of a produce."""
    answer = await it.call(produce(bytes(size), topic=topic), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def fill_up(it: InTrio, disk: SmallDisk) -> int:
    """Produces until there is no room. Returns how many records were accepted."""
    disk.fill(5_000)
    count = 0
    while not (code := await produced(it)):
        count += 1
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fill()
    return count


async def committed(it: InTrio, offset: int) -> int:
    partition = OffsetCommitRequestPartition(0, offset)
    answer = await it.call(OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=[partition])]), 7)
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def committed_offset(it: InTrio) -> int:
    groups = [OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])]
    answer = await it.call(OffsetFetchRequest(groups=groups), 8)
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


async def created(it: InTrio, name: str) -> int:
    answer = await it.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)]), 7)
    code: int = answer.topics[0].error_code
    return code


async def deleted(it: InTrio, name: str) -> int:
    answer = await it.call(DeleteTopicsRequest(topics=[DeleteTopic(name)]), 6)
    code: int = answer.responses[0].error_code
    return code


def test_a_producer_gets_an_error_at_once_and_continues_when_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        count = await fill_up(it, disk)
        partition = it.broker.partitions.find("t", 0)
        for _ in range(50):
            assert await produced(it) == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.high_watermark == partition.log_end_offset == count
        read = partition.read(0, max_bytes=ROOM, max_offset=partition.last_stable_offset, min_one_batch=True)
        assert at_hand(read).size == partition.log.size_in_bytes
        assert not it.broker.log_dirs.metadata.reserve.is_out, "producers are no reason to spend it"
        disk.fill(2 * RESERVE)
        assert await produced(it) == 0
        assert partition.high_watermark == count + 1

    on_a_small_disk(scenario)
    assert [FULL in record.message for record in caplog.records if "disk" in record.message] == [True]


def test_the_batches_of_a_producer_keep_their_order_over_a_full_disk() -> None:
    """It has several under way: the second comes when there is room again, and the first has to be sent once more."""

    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        count = await fill_up(it, disk)
        partition = it.broker.partitions.find("t", 0)

        def code_of(sequence: int) -> ErrorCode:
            record = Record(0, 1_000, None, b"%d" % sequence)
            built = build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)
            batch = memoryview(bytearray(built))
            try:
                partition.append(batch, read_header(batch), acks=-1, now_ms=1_000)
            except KafkaError as error:
                return error.code
            return ErrorCode.NONE

        assert code_of(0) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.fill(2 * RESERVE)
        assert code_of(1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert code_of(0) == ErrorCode.NONE
        assert code_of(1) == ErrorCode.NONE
        assert partition.log_end_offset == count + 2

    on_a_small_disk(scenario)


def test_topics_are_deleted_on_a_full_disk_and_that_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        it.create_topic("large", 1)
        disk.fill(RESERVE + 20_000)
        while not await produced(it, 5_000, topic="large"):
            pass
        disk.fill()
        assert await deleted(it, "large") == 0
        assert it.broker.log_dirs.metadata.reserve.is_out
        assert it.broker.metadata.topic("large") is None
        for _ in range(50):
            assert await produced(it) == ErrorCode.KAFKA_STORAGE_ERROR, "what is left of the reserve is not for them"
        await it.broker.housekeeping.remove_deleted()
        assert await produced(it) == 0
        assert not it.broker.log_dirs.metadata.reserve.is_out

    on_a_small_disk(scenario)
    lines = [record.message for record in caplog.records if "disk" in record.message]
    assert [FULL in line for line in lines] == [True, False]
    assert ROOM_AGAIN in lines[1]


def test_a_deleted_topic_s_committed_offsets_go_with_it_on_a_full_disk() -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        assert await committed(it, 5) == 0
        await fill_up(it, disk)
        assert await deleted(it, "t") == 0
        assert await committed_offset(it) == -1

    disk = on_a_small_disk(scenario)

    async def later(it: InTrio) -> None:
        assert it.broker.log_dirs.metadata.clean_shutdown
        it.create_topic("t", 1)
        assert await committed_offset(it) == -1

    disk.capacity_bytes = ROOM
    with_broker(later, settings=["kwire.log.reserve.bytes=0"], disk=disk)


def test_a_commit_is_refused_at_once_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        assert await committed(it, 1) == 0
        for _ in range(3):
            disk.fill()
            for _ in range(20):
                assert await committed(it, 2) == ErrorCode.NOT_COORDINATOR
            assert await committed_offset(it) == 1
            disk.capacity_bytes = ROOM
            assert await committed(it, 1) == 0

    on_a_small_disk(scenario)
    assert sum("cannot append" in record.message for record in caplog.records) == 3


@pytest.mark.parametrize("is_out", [False, True])
def test_nothing_new_is_created_on_a_full_disk_and_what_was_requested_is_not_there_later(is_out: bool) -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        it.create_topic("other", 1)
        await fill_up(it, disk)
        if is_out:
            assert await deleted(it, "other") == 0
        end = it.broker.metadata.log.end_offset
        assert await created(it, "new") == ErrorCode.KAFKA_STORAGE_ERROR
        answer = await it.call(CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None)]), 3)
        assert answer.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        answer = await it.call(MetadataRequest([MetadataRequestTopic(name="auto")]), 12)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = await it.call(InitProducerIdRequest(None), 4)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        answer = await it.call(find_coordinator(), 0)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "its topic cannot be created"
        assert it.broker.metadata.log.end_offset == end
        assert it.broker.log_dirs.metadata.reserve.is_out == is_out
        assert await deleted(it, "t") == 0
        disk.capacity_bytes = ROOM
        assert await created(it, "new") == 0
        assert set(it.broker.metadata.image.topics) == ({"new"} if is_out else {"new", "other"})
        assert (await it.call(InitProducerIdRequest(None), 4)).producer_id == 0

    on_a_small_disk(scenario, coordinates=False)


def test_retention_can_be_lowered_on_a_full_disk_and_makes_room() -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        count = await fill_up(it, disk)
        changes = [AlterableConfig("retention.ms", 0, "1"), AlterableConfig("file.delete.delay.ms", 0, "0")]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(2, "t", changes)])
        assert (await it.call(request, 1)).responses[0].error_code == 0
        assert await it.broker.housekeeping.apply_retention() == 1
        await it.broker.housekeeping.remove_deleted()
        partition = it.broker.partitions.find("t", 0)
        assert partition.log_start_offset == count
        assert await produced(it) == 0

    on_a_small_disk(scenario)


def test_the_room_of_the_reserve_is_not_for_cleaning() -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        configs = [CreatableTopicConfig("cleanup.policy", "compact")]
        at_once(
            it.broker.metadata.change(
                create_topics, CreateTopicsRequest([CreatableTopic("table", 1, 1, configs=configs)])
            )
        )
        table = it.broker.partitions.find("table", 0)
        for _ in range(3):
            batch = memoryview(bytearray(build_batch([Record(0, 1000, b"key", bytes(100))])))
            table.append(batch, read_header(batch), acks=1, now_ms=1000)
            log_files(table).roll(1000)
        cleaner = it.broker.cleaner
        disk.fill()
        assert await deleted(it, "t") == 0
        assert await cleaner.clean_all() == 0
        disk.capacity_bytes = ROOM
        await it.broker.housekeeping.write_checkpoints()
        assert await cleaner.clean_all() == 1

    on_a_small_disk(scenario)


def test_the_stop_on_a_full_disk_is_clean() -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        assert await committed(it, 5) == 0
        await fill_up(it, disk)

    disk = on_a_small_disk(scenario)
    assert not disk.exists(".kwire.reserve")
    counts: list[int] = []

    async def later(it: InTrio) -> None:
        assert it.broker.log_dirs.metadata.clean_shutdown
        assert await committed_offset(it) == 5
        assert await produced(it) == ErrorCode.KAFKA_STORAGE_ERROR
        counts.append(it.broker.partitions.find("t", 0).high_watermark)

    for _ in range(3):
        with_broker(later, settings=[f"kwire.log.reserve.bytes={RESERVE}"], disk=disk)
    assert len(set(counts)) == 1


def test_a_topic_whose_folder_has_no_room_is_there_and_takes_records_later() -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        def no_room_for_folders(operation: str, path: str) -> None:
            if path.startswith("new-"):
                raise disk.full(path)

        disk.before_operation = no_room_for_folders
        assert await created(it, "new") == 0, "its record is durable: it exists"
        assert await produced(it, topic="new") == ErrorCode.KAFKA_STORAGE_ERROR
        disk.before_operation = None
        assert await produced(it, topic="new") == 0

    on_a_small_disk(scenario, reserve_bytes=0)


def test_a_kill_between_a_topic_s_record_and_its_folder_does_not_keep_a_full_disk_from_starting() -> None:
    killed: list[SmallDisk] = []

    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        def kill(operation: str, path: str) -> None:
            if path.startswith("new-") and not killed:
                killed.append(disk.kill())

        disk.before_operation = kill
        assert await created(it, "new") == 0

    on_a_small_disk(scenario, reserve_bytes=0)

    async def later(it: InTrio) -> None:
        assert await produced(it, topic="new") == ErrorCode.KAFKA_STORAGE_ERROR
        killed[0].capacity_bytes = ROOM
        assert await produced(it, topic="new") == 0

    killed[0].fill()
    with_broker(later, settings=["kwire.log.reserve.bytes=0"], disk=killed[0])


def test_a_new_folder_without_room_is_refused_with_a_reason() -> None:
    config = load_config()
    for room_bytes in (0, 200, 400):
        with pytest.raises(StartError, match="cannot open the log dir ./data: .*No space left"):
            open_broker(config, SmallDisk(room_bytes), SystemClock())


def test_a_metadata_record_that_cannot_be_flushed_does_not_come_with_the_next_one() -> None:
    disk = SmallDisk(ROOM)
    opened = Log.open(disk, "__cluster_metadata-0", LogConfig(), now_ms=0, clean_shutdown=True)
    log = FileMetadataLog(opened, 1, lambda: 0)
    ends: list[int] = []
    log.watch(lambda: ends.append(log.end_offset))
    first, second = (encode_record(TopicRecord(name, bytes(16))) for name in ("first", "second"))

    def no_room_for_epochs(operation: str, path: str) -> None:
        if "leader-epoch" in path:
            raise disk.full(path)

    disk.before_operation = no_room_for_epochs
    with pytest.raises(OSError, match="No space left"):
        at_once(log.append([first], expected_end_offset=0))
    disk.before_operation = None
    assert ends == []
    at_once(log.append([second], expected_end_offset=log.end_offset))
    assert [value for _, value in at_once(log.read(0)).records] == [second]


def test_a_warning_is_logged_before_the_disk_is_full_and_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(it: InTrio, disk: SmallDisk) -> None:
        disk.capacity_bytes = 30 * RESERVE
        disk.write_bytes("others", bytes(20 * RESERVE))
        for _ in range(2):
            disk.fill(4 * RESERVE)
            await it.broker.housekeeping.write_checkpoints()
            disk.fill(RESERVE)
            for _ in range(3):
                await it.broker.housekeeping.write_checkpoints()

    on_a_small_disk(scenario)
    warnings = [record for record in caplog.records if "will soon be full" in record.message]
    assert len(warnings) == 2
    assert warnings[0].levelno == logging.WARNING


def test_a_disk_that_is_full_at_the_start_is_logged() -> None:
    disk = SmallDisk(ROOM)
    Broker.open(load_config(settings=[f"kwire.log.reserve.bytes={RESERVE}"]), disk, SystemClock()).close()
    disk.remove(".kwire.reserve")
    disk.fill(RESERVE - 1000)
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("kwire.logs.disk_room").addHandler(handler)
    try:
        broker = Broker.open(load_config(settings=[f"kwire.log.reserve.bytes={RESERVE}"]), disk, SystemClock())
    finally:
        logging.getLogger("kwire.logs.disk_room").removeHandler(handler)
    assert len(lines) == 1
    assert f"kwire.log.reserve.bytes={RESERVE} are not to be had" in lines[0]
    assert len(broker.housekeeping.rooms) == 1
    broker.close()
