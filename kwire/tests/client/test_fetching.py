"""Reads of a range of a partition: trimmed, ahead of its reader, with leaders that move and offsets that go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
)
from kwire_protocol.records import Record, build_batch, build_end_transaction_batch, iter_headers

from kwire.client.cluster import TopicPartition
from kwire.client.errors import ConnectionFailed, Refused, UnknownTopic
from kwire.client.fetching import (
    CorruptRecords,
    EndNotReached,
    OffsetOutOfRange,
    PartitionReader,
    TopicReplaced,
)
from kwire.client.offsets import IsolationLevel
from testkit.fakes.brokers import FakeBrokers
from testkit.fakes.fetched_log import Log

T0 = TopicPartition("t", 0)


def batch(base_offset: int, count: int = 3, **about: Any) -> bytes:
    records = [Record(value=b"%d" % (base_offset + index)) for index in range(count)]
    return build_batch(records, base_offset=base_offset, **about)


def offsets(reader: PartitionReader) -> list[int]:
    found = [(it.offset, it.value) for it in reader.records()]
    assert all(value == b"%d" % offset for offset, value in found)
    return [offset for offset, _ in found]


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers({"t": [1]})


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=12),
    st.integers(1, 4),
    st.data(),
)
def test_exactly_the_requested_records_are_returned(
    sizes: Sequence[tuple[int, int, int]], batch_count: int, data: st.DataObject
) -> None:
    base = 0
    batches: list[bytes] = []
    there: list[int] = []
    for hole, count, codec in sizes:
        base += hole
        batches.append(batch(base, count, compression=codec))
        there += range(base, base + count)
        base += count
    start = data.draw(st.integers(0, base))
    stop = data.draw(st.integers(start, base))
    brokers = FakeBrokers({"t": [1]})
    Log(brokers, batches, batch_count=batch_count)
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, start, stop) as reader:
        assert offsets(reader) == [it for it in there if start <= it < stop]
        assert reader.position == stop


def test_the_next_fetch_is_on_its_way_while_an_answer_is_read(brokers: FakeBrokers) -> None:
    Log(brokers, [batch(0), batch(3), batch(6), batch(9), batch(12)])
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 15) as reader:
        seen = [(it.header.base_offset, len(brokers.requests(FetchRequest))) for it in reader.batches()]
    assert seen == [(0, 2), (3, 2), (6, 3), (9, 3), (12, 3)]
    requested = [request.topics[0].partitions[0].fetch_offset for request in brokers.requests(FetchRequest)]
    assert requested == [0, 6, 12]


def test_nothing_is_fetched_behind_the_end(brokers: FakeBrokers) -> None:
    Log(brokers, [batch(0), batch(3), batch(6)])
    with brokers.cluster() as cluster:
        with PartitionReader(cluster, T0, 0, 5) as reader:
            assert offsets(reader) == [0, 1, 2, 3, 4]
        assert len(brokers.requests(FetchRequest)) == 1
        with PartitionReader(cluster, T0, 5, 5) as reader:
            assert offsets(reader) == []
        assert len(brokers.requests(FetchRequest)) == 1


def test_the_options_of_a_reader_are_sent_to_the_broker(brokers: FakeBrokers) -> None:
    Log(brokers, [batch(0)])
    with (
        brokers.cluster() as cluster,
        PartitionReader(
            cluster, T0, 0, 3, isolation_level=IsolationLevel.READ_COMMITTED, fetch_bytes=77, max_wait_ms=5
        ) as reader,
    ):
        assert offsets(reader) == [0, 1, 2]
    (request,) = brokers.requests(FetchRequest)
    assert (request.isolation_level, request.max_bytes, request.max_wait_ms, request.min_bytes) == (1, 77, 5, 1)
    (topic,) = request.topics
    assert (topic.topic_id, topic.partitions[0].partition_max_bytes) == (b"t".ljust(16), 77)


def test_a_broker_without_topic_ids_receives_the_topic_name(brokers: FakeBrokers) -> None:
    brokers.newest[FetchRequest.api_key] = 11
    Log(brokers, [batch(0)])
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 3) as reader:
        assert offsets(reader) == [0, 1, 2]
    assert brokers.requests(FetchRequest)[0].topics[0].topic == "t"


def test_aborted_records_are_left_out_of_committed_data_only(brokers: FakeBrokers) -> None:
    mine = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    marker = build_end_transaction_batch(
        commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=6
    )
    Log(brokers, [batch(0), batch(3, **mine), marker, batch(7, **mine)], batch_count=9, aborted=[(7, 3)])
    with brokers.cluster() as cluster:
        with PartitionReader(cluster, T0, 0, 10) as reader:
            assert offsets(reader) == [0, 1, 2, 3, 4, 5, 7, 8, 9]
        with PartitionReader(cluster, T0, 0, 10, isolation_level=IsolationLevel.READ_COMMITTED) as reader:
            assert offsets(reader) == [0, 1, 2, 7, 8, 9]


def test_a_leader_that_moves_is_followed(brokers: FakeBrokers) -> None:
    log = Log(brokers, [batch(3 * number) for number in range(6)], batch_count=1)
    log.leads = lambda node_id: node_id == brokers.leaders["t"][0]
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 18) as reader:
        seen = []
        for it in reader.batches():
            seen += [record.offset for record in it.records()]
            if seen[-1] == 5:
                brokers.leaders["t"] = [2]
            if seen[-1] == 11:
                brokers.down = {2}
                brokers.leaders["t"] = [1]
        assert seen == list(range(18))


def test_what_has_come_is_given_out_though_the_next_fetch_fails(brokers: FakeBrokers) -> None:
    log = Log(brokers, [batch(0), batch(3)], batch_count=1)
    calls: list[int] = []

    def hang_up_at_the_second(node_id: int, request: Any) -> FetchResponse:
        calls.append(node_id)
        if len(calls) == 2:
            raise ConnectionResetError(104, "Connection reset by peer")
        return log.fetch(node_id, request)

    brokers.answers[FetchRequest] = hang_up_at_the_second
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 6) as reader:
        for it in reader.batches():
            assert (it.header.base_offset, brokers.clock.slept_s) == (0, [])
            break
        assert offsets(reader) == [0, 1, 2, 3, 4, 5]


def test_a_batch_before_the_requested_offset_is_passed_over(brokers: FakeBrokers) -> None:
    log = Log(brokers, [batch(0), batch(3)])
    brokers.answers[FetchRequest] = lambda _, request: log.answer(request.topics[0], 0, b"".join(log.batches))
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 3, 6) as reader:
        assert [it.header.base_offset for it in reader.batches()] == [3]


def test_a_leader_that_stays_away_is_reported(brokers: FakeBrokers) -> None:
    log = Log(brokers, [batch(0)])
    log.leads = lambda node_id: False
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 3) as reader:
        with pytest.raises(Refused, match="t-0 cannot be fetched from offset 0: NOT_LEADER_OR_FOLLOWER"):
            offsets(reader)
        assert 25 < brokers.clock.now_s <= 30
        brokers.down = {1, 2}
        with pytest.raises(ConnectionFailed):
            offsets(reader)


def test_an_error_that_does_not_pass_is_reported_at_once(brokers: FakeBrokers) -> None:
    Log(brokers, [batch(0)], codes=[29])
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 3) as reader:
        with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
            offsets(reader)
        assert brokers.clock.slept_s == []


@pytest.mark.parametrize(("start", "stop"), [(3, 20), (30, 40)])
def test_an_offset_that_is_not_there_names_the_range(brokers: FakeBrokers, start: int, stop: int) -> None:
    Log(brokers, [batch(10), batch(13)], log_start=10)
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, start, stop) as reader:
        with pytest.raises(OffsetOutOfRange) as error:
            offsets(reader)
        assert error.value.message == f"offset {start} of t-0 is out of range: it has 10 up to, and without, 16"
        assert (error.value.offset, error.value.earliest, error.value.latest) == (start, 10, 16)
        assert brokers.clock.slept_s == []


def test_an_offset_that_a_new_leader_does_not_have_yet_is_requested_again(brokers: FakeBrokers) -> None:
    Log(brokers, [batch(0)], codes=[1, 1])
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 3) as reader:
        assert offsets(reader) == [0, 1, 2]
        assert len(brokers.clock.slept_s) == 2


def test_an_end_that_is_never_written_is_reported(brokers: FakeBrokers) -> None:
    Log(brokers, [batch(0)])
    with brokers.cluster(timeout_s=10) as cluster, PartitionReader(cluster, T0, 0, 5) as reader:
        seen: list[int] = []
        with pytest.raises(EndNotReached, match="nothing has come of t-0 from offset 3 on for 10 s; 5 was requested"):
            seen.extend(it.offset for it in reader.records())
        assert seen == [0, 1, 2]
        assert 10 <= brokers.clock.now_s < 12


def test_what_is_written_while_it_is_waited_for_comes(brokers: FakeBrokers) -> None:
    log = Log(brokers, [batch(0)])
    fetch, left = log.fetch, [3]

    def later(node_id: int, request: Any) -> FetchResponse:
        left[0] -= 1
        if not left[0]:
            log.batches.append(batch(3))
        return fetch(node_id, request)

    brokers.answers[FetchRequest] = later
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 6) as reader:
        assert offsets(reader) == list(range(6))


def test_corrupt_records_are_reported_after_those_before_them(brokers: FakeBrokers) -> None:
    spoilt = bytearray(batch(3))
    spoilt[-1] ^= 1
    Log(brokers, [batch(0), bytes(spoilt)], batch_count=1)
    with brokers.cluster() as cluster:
        with PartitionReader(cluster, T0, 0, 6) as reader:
            seen: list[int] = []
            with pytest.raises(CorruptRecords, match="the records of t-0 from offset 3 on are corrupt: the stored CRC"):
                seen.extend(it.offset for it in reader.records())
            assert seen == [0, 1, 2]
        with (
            PartitionReader(cluster, T0, 0, 6, check_crcs=False) as reader,
            pytest.raises(CorruptRecords, match="from offset 3 on are corrupt"),
        ):
            offsets(reader)


def test_another_topic_of_the_name_is_not_read(brokers: FakeBrokers) -> None:
    Log(brokers, [batch(0)], codes=[100])
    with brokers.cluster() as cluster:
        with (
            PartitionReader(cluster, T0, 0, 3, topic_id=b"u".ljust(16)) as reader,
            pytest.raises(TopicReplaced, match="the topic 't' that was read is deleted; this is another"),
        ):
            offsets(reader)
        with PartitionReader(cluster, T0, 0, 3, topic_id=b"t".ljust(16)) as reader:
            assert offsets(reader) == [0, 1, 2]
        with PartitionReader(cluster, TopicPartition("t", 1), 0, 3) as reader, pytest.raises(UnknownTopic):
            offsets(reader)


def test_reading_may_be_begun_again_in_the_midst(brokers: FakeBrokers) -> None:
    Log(brokers, [batch(3 * number) for number in range(6)])
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 18) as reader:
        for it in reader.batches():
            if it.header.base_offset == 3:
                break
        assert reader.position == 3
        assert offsets(reader) == list(range(3, 18))


def test_batches_are_slices_of_what_was_received(brokers: FakeBrokers) -> None:
    Log(brokers, [batch(0), batch(3), batch(6), batch(9)])
    with brokers.cluster() as cluster, PartitionReader(cluster, T0, 0, 12) as reader:
        found = list(reader.batches())
    assert found[0].data.obj is found[1].data.obj
    assert found[0].data.obj is not found[2].data.obj
    assert [bytes(it.data) for it in found] == [batch(3 * number) for number in range(4)]
    assert [next(iter_headers(it.data))[1] for it in found] == [it.header for it in found]
