"""A task, and the requests of the driver, against brokers made of functions."""

from __future__ import annotations

import pickle

import pytest
from kwire_protocol.messages.list_offsets import ListOffsetsRequest
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import Uuid

from kwire.client.cluster import TopicPartition
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.offset_reader import OffsetReader
from kwire.pipeline.spark_source.options import SourceOptions, parse_source_options
from kwire.pipeline.spark_source.ranges import OffsetRange
from kwire.pipeline.spark_source.reading import RangePartition, read_range
from testkit.fakes.brokers import FakeBrokers
from testkit.fakes.fetched_log import Log
from testkit.fakes.listed_offsets import response_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def options(**given: str) -> SourceOptions:
    subscription = {} if {"assign", "subscribePattern"} & given.keys() else {"subscribe": "t"}
    return parse_source_options({"kafka.bootstrap.servers": "node:1", **subscription, **given}, streaming=False)


def offset_reader(brokers: FakeBrokers, **given: str) -> OffsetReader:
    return OffsetReader(options(**given), brokers.cluster)


def values(brokers: FakeBrokers, start: int, stop: int, *, topic_id: Uuid | None = None, **given: str) -> list[bytes]:
    # As it travels.
    partition = pickle.loads(pickle.dumps(RangePartition(OffsetRange(T0, start, stop), topic_id)))
    return [
        value
        for rows in read_range(partition, options(**given), lambda _: brokers.cluster(timeout_s=5.0))
        for value in rows["value"].to_pylist()
    ]


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers(leaders={"t": [1]})


def log(brokers: FakeBrokers, start: int, stop: int) -> None:
    batches = [build_batch([Record(value=b"%d" % n)], base_offset=n) for n in range(start, stop)]
    Log(brokers, batches, log_start=start)


def test_a_range_is_read_and_no_more(brokers: FakeBrokers) -> None:
    log(brokers, 0, 10)
    assert values(brokers, 3, 7) == [b"3", b"4", b"5", b"6"]


def test_nothing_planned_is_nothing_read(brokers: FakeBrokers) -> None:
    assert list(read_range(None, options(), lambda _: brokers.cluster())) == []


def test_records_that_aged_out_are_named_by_their_offsets(brokers: FakeBrokers) -> None:
    log(brokers, 5, 10)
    with pytest.raises(PipelineError, match=r"offsets 2 to 8 of t-0 cannot be read: .* some data may have been missed"):
        values(brokers, 2, 9)
    assert values(brokers, 2, 9, failOnDataLoss="false") == [b"5", b"6", b"7", b"8"]


def test_an_end_that_is_not_reached_is_an_error_or_taken_as_it_is(brokers: FakeBrokers) -> None:
    log(brokers, 0, 5)
    with pytest.raises(PipelineError, match=r"offsets 5 to 8 of t-0 cannot be read: nothing has come"):
        values(brokers, 3, 9)
    assert values(brokers, 3, 9, failOnDataLoss="false") == [b"3", b"4"]


def test_a_start_beyond_the_end_is_an_error_or_reads_nothing(brokers: FakeBrokers) -> None:
    log(brokers, 0, 5)
    with pytest.raises(PipelineError, match="offset 7 of t-0 is out of range"):
        values(brokers, 7, 9)
    assert values(brokers, 7, 9, failOnDataLoss="false") == []


def test_a_topic_that_is_another_by_now_is_an_error_or_is_read(brokers: FakeBrokers) -> None:
    log(brokers, 0, 5)
    with pytest.raises(PipelineError, match="that was read is deleted; this is another"):
        values(brokers, 0, 2, topic_id=b"another".ljust(16))
    assert values(brokers, 0, 2, topic_id=b"another".ljust(16), failOnDataLoss="false") == [b"0", b"1"]


def test_brokers_out_of_reach_are_reported_in_one_line(brokers: FakeBrokers) -> None:
    brokers.down = {1, 2}
    with pytest.raises(PipelineError, match="cannot reach node:1: Connection refused; cannot reach node:2"):
        values(brokers, 0, 2)
    with pytest.raises(PipelineError, match="cannot reach node:1"):
        offset_reader(brokers).partitions()


def test_partitions_are_found_by_name_pattern_or_assignment(brokers: FakeBrokers) -> None:
    brokers.leaders = {"t": [1, 2], "tt": [1], "other": [1]}
    assert offset_reader(brokers).partitions() == {T0, T1}
    assert {at.topic for at in offset_reader(brokers, subscribePattern="^t+$").partitions()} == {"t", "tt"}
    assert {at.topic for at in offset_reader(brokers, subscribePattern="t").partitions()} == {"t", "tt", "other"}
    assert offset_reader(brokers, assign='{"t": [1]}').partitions() == {T1}
    with pytest.raises(PipelineError, match=r"not there \(UNKNOWN_TOPIC_OR_PARTITION\): t-7"):
        offset_reader(brokers, assign='{"t": [1, 7]}').partitions()
    with pytest.raises(PipelineError, match="there is no topic 'missing'"):
        offset_reader(brokers, assign='{"missing": [1]}').partitions()


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({}, {T0: 2, T1: 2}),
        ({"startingOffsets": '{"t": {"0": -2, "1": 5}}'}, {T0: 2, T1: 5}),
        ({"startingTimestamp": "50"}, {T0: 7, T1: 7}),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 50, "1": 10}}'}, {T0: 7, T1: 7}),
        ({"startingTimestamp": "99", "startingOffsetsByTimestampStrategy": "latest"}, {T0: 9, T1: 9}),
    ],
)
def test_a_start_is_an_offset_a_word_or_a_time(
    brokers: FakeBrokers, given: dict[str, str], starts: dict[TopicPartition, int]
) -> None:
    two_partitions(brokers)
    assert offset_reader(brokers, **given).starts([T0, T1]) == starts


def test_an_end_by_time_is_the_latest_offset_when_no_record_is_so_late(brokers: FakeBrokers) -> None:
    two_partitions(brokers)
    assert offset_reader(brokers, endingTimestamp="50").ends([T0, T1]) == {T0: 7, T1: 7}
    assert offset_reader(brokers, endingTimestamp="99").ends([T0, T1]) == {T0: 9, T1: 9}


def test_what_open_transactions_hold_back_is_no_latest_offset_of_committed_data(brokers: FakeBrokers) -> None:
    two_partitions(brokers)
    for isolation in ("read_uncommitted", "read_committed"):
        offset_reader(brokers, **{"kafka.isolation.level": isolation}).latest([T0])
    assert [it.isolation_level for it in brokers.requests(ListOffsetsRequest)] == [0, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingTimestamp": "99"}, "option startingTimestamp: t-0, t-1 has no record of 99 ms or later"),
        ({"startingOffsets": '{"t": {"0": 1}}'}, "every partition that is read: t-1 is missing"),
        ({"startingOffsets": '{"t": {"0": 1, "1": 1, "2": 1}}'}, "names what is not read: t-2"),
    ],
)
def test_a_start_that_cannot_be_found_is_reported(brokers: FakeBrokers, given: dict[str, str], message: str) -> None:
    two_partitions(brokers)
    with pytest.raises(PipelineError, match=message):
        offset_reader(brokers, **given).starts([T0, T1])


def two_partitions(brokers: FakeBrokers) -> None:
    """Sets two partitions with offsets 2 to 8, of which 7 is the first of time 50; none is of 99."""
    brokers.leaders = {"t": [1, 2]}
    at_times = {-2: 2, -1: 9, 10: 7, 50: 7, 99: -1}
    brokers.answers[ListOffsetsRequest] = lambda _, request: response_of(
        request, lambda index: (0, at_times[request.topics[0].partitions[0].timestamp])
    )
