"""The effect of flush.messages on clients: when they get responses and what they may read, on a slow disk."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from kwire.node.running import BrokerEnded
from testkit.raw.client import ConnectionClosed, RawClient
from testkit.raw.simple_requests import fetch, find_coordinator, produce
from testkit.scenes.flushing import BrokerOn, assert_silent, broker_on, create_topic, held
from testkit.storage.slow_disk import SlowDisk

PRODUCE_VERSION = 9


def records_from(client: RawClient, offset: int) -> bytes:
    return bytes(client.call(fetch(offset), 12).responses[0].partitions[0].records or b"")


def test_a_producer_is_answered_when_the_medium_has_its_records_and_a_consumer_reads_them_then() -> None:
    disk = SlowDisk()
    with broker_on(disk) as broker, RawClient(broker.address) as producer, RawClient(broker.address) as consumer:
        with held(producer, produce(b"x"), PRODUCE_VERSION, disk):
            assert records_from(consumer, 0) == b""
        answer = _produce_answer(producer)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert b"x" in records_from(consumer, 0)


def test_producers_that_come_during_an_fsync_share_the_next() -> None:
    disk = SlowDisk()
    with broker_on(disk) as broker, RawClient(broker.address) as first:
        others = [RawClient(broker.address) for _ in range(8)]
        with held(first, produce(b"x"), PRODUCE_VERSION, disk):
            for other in others:
                other.send_requests((produce(b"y"), PRODUCE_VERSION))
            for other in others:
                assert_silent(other)
        assert _produce_answer(first).error_code == 0
        disk.wait_for_sync()
        disk.let_sync_end()
        assert sorted(_produce_answer(other).base_offset for other in others) == list(range(1, 9))
        assert len(disk.syncs) == 2
        for other in others:
            other.close()


def test_a_batch_that_is_sent_again_while_it_waits_is_answered_with_the_first() -> None:
    disk = SlowDisk()
    batch = build_batch([Record(0, 1000, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0)
    request = ProduceRequest(
        None, -1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, bytearray(batch))])]
    )
    with broker_on(disk) as broker, RawClient(broker.address) as first, RawClient(broker.address) as again:
        with held(first, request, PRODUCE_VERSION, disk):
            again.send_requests((request, PRODUCE_VERSION))
            assert_silent(again)
        for client in (first, again):
            answer = _produce_answer(client)
            assert (answer.error_code, answer.base_offset) == (0, 0)


def test_without_acknowledgement_nobody_waits() -> None:
    disk = SlowDisk()
    with broker_on(disk) as broker, RawClient(broker.address) as producer:
        producer.send_requests((produce(b"x", acks=0), PRODUCE_VERSION))
        disk.wait_for_sync()
        assert records_from(producer, 0) == b""
        disk.let_sync_end()


def test_a_commit_of_offsets_is_answered_when_the_medium_has_it() -> None:
    disk = SlowDisk("__consumer_offsets")
    settings = {"log.flush.interval.messages": "1", "offsets.topic.num.partitions": "1"}
    commit = OffsetCommitRequest(
        "g", topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5)])]
    )
    with broker_on(disk, settings) as broker, RawClient(broker.address) as client:
        client.call(find_coordinator(), 0)
        with held(client, commit, 8, disk):
            pass
        (answer,) = client.answer().topics[0].partitions
        assert answer.error_code == 0


def test_without_a_sound_disk_nothing_is_acknowledged_and_the_broker_ends() -> None:
    disk = SlowDisk()
    disk.errors["sync"] = [errno.EIO]
    broker = BrokerOn(disk=disk).start()
    with RawClient(broker.address) as producer, suppress(ConnectionClosed):
        create_topic(producer)
        with held(producer, produce(b"x"), PRODUCE_VERSION, disk):
            pass
        assert _produce_answer(producer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(BrokerEnded, match="Input/output error"):
        broker.stop()


def _produce_answer(client: RawClient) -> Any:
    return client.answer().responses[0].partition_responses[0]
