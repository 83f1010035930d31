"""A broker whose files have rotted: what clients see of it, and what it cannot start without."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire_protocol.records import BATCH_HEADER_SIZE, read_header

from kwire.coordinators.runtime import java_hash
from kwire.node.running import StartError
from kwire.testing import Broker
from testkit.raw.client import RawClient
from testkit.raw.simple_requests import find_coordinator, produce

SETTINGS = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
BATCHES = 20
BAD = 7
"""The number, and offset, of the batch that is spoilt."""
FIRST_SEGMENT = "00000000000000000000.log"


def create_topic(client: RawClient) -> None:
    client.call(MetadataRequest([MetadataRequestTopic(name="t")]), 9)


def started(folder: Path) -> Broker:
    return Broker(data_dir=folder / "data", settings=SETTINGS)


def positions(file: Path) -> list[int]:
    """Returns where the batches of a file begin."""
    data = file.read_bytes()
    found, position = [], 0
    while position + BATCH_HEADER_SIZE <= len(data):
        found.append(position)
        position += read_header(data, position).size_in_bytes
    return found


def spoil(file: Path, position: int, by: bytes = b"\xff" * 30) -> None:
    data = bytearray(file.read_bytes())
    data[position : position + len(by)] = by
    file.write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A broker's folder: topic `t` has twenty batches of a record each, of which one is damaged since."""
    with started(tmp_path) as broker, RawClient(broker.address) as client:
        create_topic(client)
        for number in range(BATCHES):
            answer = client.call(produce(f"value {number}".encode()), 9)
            assert answer.responses[0].partition_responses[0].base_offset == number
    file = tmp_path / "data" / "t-0" / FIRST_SEGMENT
    spoil(file, positions(file)[BAD] + 8)
    return tmp_path


def values(numbers: range) -> list[bytes]:
    return [f"value {number}".encode() for number in numbers]


def test_confluent_kafka_gets_an_error_and_reads_on_behind_it(folder: Path) -> None:
    with started(folder) as broker:
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "fetch.error.backoff.ms": 10})
        consumer.assign([TopicPartition("t", 0, 0)])
        found: list[bytes] = []
        errors: list[int] = []
        # What is sent first may contain a part whose damage is not found yet: the client finds it by itself.
        while ErrorCode.CORRUPT_MESSAGE not in errors:
            message = consumer.poll(10)
            assert message is not None
            error, value = message.error(), message.value()
            if error is not None:
                errors.append(error.code())
                assert len(errors) < 10
            elif value is not None:
                found.append(value)
        assert found == values(range(BAD))
        consumer.seek(TopicPartition("t", 0, BAD + 1))
        found.clear()
        while len(found) < BATCHES - BAD - 1:
            message = consumer.poll(10)
            assert message is not None
            value = message.value()
            if not message.error() and value is not None:
                found.append(value)
        consumer.close()
        assert found == values(range(BAD + 1, BATCHES))


@pytest.mark.filterwarnings("ignore:read_text is deprecated", "ignore:open_text is deprecated")
def test_kafka_python_gets_an_error_and_reads_on_behind_it(folder: Path) -> None:
    from kafka import KafkaConsumer, TopicPartition, errors

    with started(folder) as broker:
        consumer = KafkaConsumer(bootstrap_servers=broker.address, enable_auto_commit=False, consumer_timeout_ms=10_000)
        partition = TopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert [next(consumer).value for _ in range(BAD)] == values(range(BAD))
        with pytest.raises(errors.KafkaError):
            next(consumer)
        consumer.seek(partition, BAD + 1)
        found = [next(consumer).value for _ in range(BATCHES - BAD - 1)]
        consumer.close()
        assert found == values(range(BAD + 1, BATCHES))


def test_every_answer_is_as_good_as_the_data(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with started(folder) as broker, RawClient(broker.address) as client:

        def fetched(offset: int) -> tuple[int, int]:
            wanted = [FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)]
            answer = client.call(FetchRequest(max_bytes=1 << 20, topics=[FetchTopic("t", partitions=wanted)]), 12)
            partition = answer.responses[0].partitions[0]
            return partition.error_code, len(partition.records or b"")

        assert fetched(BAD) == (ErrorCode.CORRUPT_MESSAGE, 0)
        assert fetched(0)[0] == fetched(BAD + 1)[0] == ErrorCode.NONE
        assert fetched(0)[1] > 0
        newest = client.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, 1000)])]), 7)
        assert newest.topics[0].partitions[0].error_code == ErrorCode.NONE
        # Its end is fine, so it takes more.
        assert client.call(produce(b"more"), 9).responses[0].partition_responses[0].base_offset == BATCHES
        assert fetched(BATCHES)[0] == ErrorCode.NONE
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert f"t-0/{FIRST_SEGMENT} is corrupt" in lines[0]
    assert f"offsets {BAD} to {BAD}" in lines[0]


def group_on(partition: int) -> str:
    return next(name for name in map("group{}".format, range(100)) if java_hash(name) % 2 == partition)


def commit(client: RawClient, group: str) -> int:
    request = OffsetCommitRequest(
        group,
        topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5, committed_metadata="")])],
    )
    return int(client.call(request, 7).topics[0].partitions[0].error_code)


def committed(client: RawClient, group: str) -> tuple[int, int]:
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])]
    )
    answer = client.call(request, 8).groups[0]
    return answer.error_code, answer.topics[0].partitions[0].committed_offset if answer.topics else -1


@pytest.mark.parametrize("at", [8, 70], ids=["a header", "a record"])
def test_groups_whose_offsets_are_not_all_there_have_no_coordinator_and_others_do(
    tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    with started(tmp_path) as broker, RawClient(broker.address) as client:
        create_topic(client)
        client.call(find_coordinator(), 0)
        for group in (group_on(0), group_on(1)):
            for _ in range(3):
                assert commit(client, group) == ErrorCode.NONE
    file = tmp_path / "data" / "__consumer_offsets-0" / FIRST_SEGMENT
    spoil(file, positions(file)[1] + at, b"\xff\xfe\xfd")
    before = file.read_bytes()
    with started(tmp_path) as broker, RawClient(broker.address) as client:
        assert committed(client, group_on(1)) == (ErrorCode.NONE, 5)
        assert committed(client, group_on(0)) == (ErrorCode.NOT_COORDINATOR, -1)
        assert commit(client, group_on(0)) == ErrorCode.NOT_COORDINATOR
        assert commit(client, group_on(1)) == ErrorCode.NONE
    assert file.read_bytes() == before
    assert any("the groups of __consumer_offsets-0 have no coordinator" in it.getMessage() for it in caplog.records)


def crashed(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()


def crashed_early(data: Path) -> None:
    """Leaves the folder as after a crash before the first checkpoint of synced records."""
    crashed(data)
    (data / "recovery-point-offset-checkpoint").unlink()


@pytest.mark.parametrize("stop", [crashed, crashed_early, lambda _data: None], ids=["late", "early", "clean"])
@pytest.mark.parametrize("at", [8, 80], ids=["a header", "a record"])
def test_without_its_metadata_the_broker_does_not_start_and_reports_where_it_is_damaged(
    folder: Path, stop: Callable[[Path], None], at: int
) -> None:
    file = folder / "data" / "__cluster_metadata-0" / FIRST_SEGMENT
    position = positions(file)[2]
    spoil(file, position + at, b"\xff\xfe\xfd")
    before = file.read_bytes()
    stop(folder / "data")
    for _ in range(2):
        with pytest.raises(
            StartError, match=rf"__cluster_metadata-0/{FIRST_SEGMENT} is corrupt (from|at) {position}\b"
        ):
            started(folder).start()
        assert file.read_bytes() == before


def test_a_torn_end_of_the_metadata_is_what_a_crash_leaves(folder: Path) -> None:
    file = folder / "data" / "__cluster_metadata-0" / FIRST_SEGMENT
    spoil(file, positions(file)[-1] + 8, b"\xff\xfe\xfd")
    crashed_early(folder / "data")
    with started(folder):
        pass


def test_what_a_crash_cost_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with started(tmp_path) as broker, RawClient(broker.address) as client:
        create_topic(client)
        for number in range(BATCHES):
            client.call(produce(f"value {number}".encode()), 9)
    data = tmp_path / "data"
    file = data / "t-0" / FIRST_SEGMENT
    spoil(file, positions(file)[BAD] + 8)
    crashed_early(data)
    with started(tmp_path):
        pass
    logged = " ".join(record.getMessage() for record in caplog.records)
    assert "t-0 was not closed cleanly: cut" in logged
    assert f"t-0 lost {BATCHES - BAD - 1} good batches" in logged
    assert f"up to offset {BATCHES - 1}" in logged


def test_an_unreadable_topic_id_is_no_reason_not_to_start(folder: Path) -> None:
    (folder / "data" / "t-0" / "partition.metadata").write_text("rotten")
    with started(folder) as broker, RawClient(broker.address) as client:
        assert client.call(produce(b"more"), 9).responses[0].partition_responses[0].base_offset == BATCHES


def test_a_checkpoint_that_cannot_be_read_is_named_at_the_start(folder: Path) -> None:
    (folder / "data" / "recovery-point-offset-checkpoint").write_text("rotten")
    with pytest.raises(StartError, match="recovery-point-offset-checkpoint"):
        started(folder).start()
