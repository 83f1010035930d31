"""The reaction of a follower to each answer of a leader, honest or not. Pure: the log is a list."""

from __future__ import annotations

import math
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.fetch import (
    EpochEndOffset,
    FetchRequest,
    PartitionData,
)
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from kwire.replication.fetching import EARLIEST, LATEST, LEAST_NEWCOMERS, LONG_MS, Fetcher, FetchSettings
from testkit.worlds.replication.listed_log import EPOCH, KEY, TOPIC_ID, ListedLog, batch, records, response

SETTINGS = FetchSettings()


def following(log: ListedLog) -> Fetcher:
    fetcher = Fetcher(2, 1, 77, SETTINGS)
    fetcher.follow(KEY, "t", EPOCH, log)
    return fetcher


def fetch_of(fetcher: Fetcher, now_ms: int = 0) -> FetchRequest:
    request = fetcher.next_request(now_ms)
    assert isinstance(request, FetchRequest)
    return request


def test_the_pauses_after_an_election_grow_up_to_the_back_off() -> None:
    fetcher = following(ListedLog())
    pauses_ms: list[float] = []
    now_ms = 0
    for _ in range(9):
        fetch_of(fetcher, now_ms)
        fetcher.received(response(PartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)), now_ms)
        pauses_ms.append(fetcher.next_pause_ends_ms() - now_ms)
        now_ms += int(pauses_ms[-1])
        fetcher.end_pauses(now_ms)
    assert pauses_ms == [5, 10, 20, 40, 80, 160, 320, 640, SETTINGS.backoff_ms]
    fetch_of(fetcher, now_ms)
    fetcher.received(response(records(batch(0))), now_ms)
    fetch_of(fetcher, now_ms)
    fetcher.received(response(PartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)), now_ms)
    assert fetcher.next_pause_ends_ms() == now_ms + 5


def test_the_first_request_names_all_and_the_next_ones_what_changed() -> None:
    log = ListedLog()
    fetcher = following(log)
    fetcher.follow((TOPIC_ID, 1), "t", EPOCH, ListedLog())
    first = fetch_of(fetcher)
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert [it.partition for it in first.topics[0].partitions] == [0, 1]
    assert first.replica_state is not None
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (1, 77)
    fetcher.received(response(records(batch(0, 3), high_watermark=9)), 0)
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    second = fetch_of(fetcher)
    assert (second.session_id, second.session_epoch) == (9, 1)
    [requested] = second.topics[0].partitions
    assert (requested.partition, requested.fetch_offset) == (0, 3)
    assert (requested.last_fetched_epoch, requested.current_leader_epoch) == (5, 5)
    fetcher.received(response(), 0)
    assert fetch_of(fetcher).topics == []
    fetcher.received(response(), 0)
    fetcher.forget(KEY)
    assert [(it.topic_id, it.partitions) for it in fetch_of(fetcher).forgotten_topics_data] == [(TOPIC_ID, [0])]


def test_a_partition_that_got_records_is_named_last_in_the_next_full_request() -> None:
    fetcher = following(ListedLog())
    fetcher.follow((TOPIC_ID, 1), "t", EPOCH, ListedLog())
    fetch_of(fetcher)
    fetcher.received(response(records(batch(0)), session_id=0), 0)
    assert [it.partition for it in fetch_of(fetcher).topics[0].partitions] == [1, 0]


@pytest.mark.parametrize("session_id", [0, 9])
def test_as_many_partitions_join_the_session_as_are_taken_in_quickly(session_id: int) -> None:
    fetcher = following(ListedLog())
    for index in range(1, 7 * LEAST_NEWCOMERS + 1):
        fetcher.follow((TOPIC_ID, index), "t", EPOCH, ListedLog())
    named: list[set[int]] = []
    waits, now_ms = [], 0
    for taking_ms in (0, LONG_MS, 0, 0):
        request = fetch_of(fetcher, now_ms)
        named.append({it.partition for it in request.topics[0].partitions})
        waits.append(request.max_wait_ms)
        assert not fetcher.should_hurry
        fetcher.received(response(records(batch(len(named) - 1)), session_id=session_id), now_ms)
        now_ms += taking_ms
    joined = [len(now - before) for before, now in pairwise([set[int](), *named])]
    assert joined == [LEAST_NEWCOMERS, 2 * LEAST_NEWCOMERS, LEAST_NEWCOMERS, 2 * LEAST_NEWCOMERS]
    assert all(0 in it for it in named), "one that has joined is fetched in each round"
    assert waits == [0, 0, 0, 0], "the leader does not wait for data while others are to join"


def test_the_back_off_after_an_error_does_not_count_as_time_that_an_answer_took() -> None:
    fetcher = following(ListedLog())
    for index in range(1, 3 * LEAST_NEWCOMERS):
        fetcher.follow((TOPIC_ID, index), "t", EPOCH, ListedLog())
    fetch_of(fetcher)
    fetcher.received(response(error=ErrorCode.UNKNOWN_SERVER_ERROR), 0)
    assert fetcher.next_request(0) is None
    assert len(fetch_of(fetcher, SETTINGS.backoff_ms).topics[0].partitions) == 2 * LEAST_NEWCOMERS


def test_the_leader_may_wait_when_all_have_joined_and_is_hurried_when_there_is_another_one() -> None:
    fetcher = following(ListedLog())
    assert fetch_of(fetcher).max_wait_ms == SETTINGS.max_wait_ms
    assert not fetcher.should_hurry
    fetcher.follow((TOPIC_ID, 1), "t", EPOCH, ListedLog())
    assert fetcher.should_hurry


@pytest.mark.parametrize(
    ("code", "closed"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9)],
)
def test_a_session_that_is_gone_is_followed_by_a_full_request(code: ErrorCode, closed: int) -> None:
    fetcher = following(ListedLog())
    fetch_of(fetcher)
    fetcher.received(response(), 0)
    fetch_of(fetcher)
    fetcher.received(response(error=code), 0)
    request = fetch_of(fetcher)
    assert (request.session_id, request.session_epoch, len(request.topics)) == (closed, 0, 1)


def test_an_answer_from_before_a_new_leader_epoch_is_dropped() -> None:
    log = ListedLog()
    fetcher = following(log)
    fetch_of(fetcher)
    fetcher.follow(KEY, "t", EPOCH + 1, log)
    fetcher.received(response(records(batch(0))), 0)
    assert log.batches == []
    [requested] = fetch_of(fetcher).topics[0].partitions
    assert requested.current_leader_epoch == EPOCH + 1


def test_a_lost_connection_is_followed_by_a_full_request_after_the_back_off() -> None:
    fetcher = following(ListedLog())
    fetch_of(fetcher)
    fetcher.received(response(), 0)
    fetch_of(fetcher)
    fetcher.disconnected(10)
    assert fetcher.next_request(10 + SETTINGS.backoff_ms - 1) is None
    assert fetcher.next_deadline_ms() == 10 + SETTINGS.backoff_ms
    request = fetch_of(fetcher, 10 + SETTINGS.backoff_ms)
    assert (request.session_id, request.session_epoch, len(request.topics)) == (0, 0, 1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        12345,
    ],
)
def test_a_partition_with_an_error_waits_and_is_requested_again(code: int) -> None:
    fetcher = following(ListedLog())
    fetcher.follow((TOPIC_ID, 1), "t", EPOCH, ListedLog())
    fetch_of(fetcher)
    fetcher.received(response(PartitionData(0, code)), 0)
    request = fetch_of(fetcher)
    assert [it.partitions for it in request.forgotten_topics_data] == [[0]]
    fetcher.received(response(), 0)
    assert [it.partition for it in fetch_of(fetcher, SETTINGS.backoff_ms).topics[0].partitions] == [0]


def test_a_diverging_log_is_cut_to_the_last_epoch_that_both_have() -> None:
    log = ListedLog([(0, 4, 1), (4, 8, 3), (8, 9, 4)])
    fetcher = following(log)
    fetch_of(fetcher)
    fetcher.received(response(PartitionData(0, diverging_epoch=EpochEndOffset(3, 6))), 0)
    assert log.batches == [(0, 4, 1)]  # a batch that reaches over the offset goes as a whole
    log.batches = [(0, 4, 1), (4, 8, 3)]
    fetcher.follow(KEY, "t", EPOCH, log)
    fetch_of(fetcher)
    fetcher.received(response(PartitionData(0, diverging_epoch=EpochEndOffset(2, 6))), 0)
    assert log.batches == [(0, 4, 1)], "of epoch 2 it has nothing, so it ends with epoch 1"


@pytest.mark.parametrize(("leader_start", "leader_end", "end"), [(0, 3, 3), (7, 20, 7), (0, 20, 5)])
def test_a_log_outside_of_the_leaders_range_is_cut_or_starts_over(leader_start: int, leader_end: int, end: int) -> None:
    log = ListedLog([(it, it + 1, 1) for it in range(5)])
    fetcher = following(log)
    fetch_of(fetcher)
    fetcher.received(response(PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE)), 0)
    for timestamp, offset in ((LATEST, leader_end), (EARLIEST, leader_start)):
        request = fetcher.next_request(0)
        if not isinstance(request, ListOffsetsRequest):
            break
        assert request.topics[0].partitions[0].timestamp == timestamp
        answer = ListOffsetsPartitionResponse(0, 0, -1, offset)
        fetcher.received(ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [answer])]), 0)
    assert log.log_end_offset == end


def test_a_held_partition_is_not_fetched_before_its_flush_has_ended() -> None:
    log = ListedLog(is_held=True)
    fetcher = following(log)
    fetch_of(fetcher)
    fetcher.received(response(records(batch(0))), 0)
    assert fetcher.next_request(0) is None
    assert fetcher.next_deadline_ms() == math.inf
    fetcher.release(KEY)
    assert fetch_of(fetcher).topics[0].partitions[0].fetch_offset == 1


def test_the_leaders_log_may_begin_in_the_middle_of_a_batch() -> None:
    log = ListedLog(log_start_offset=2, end=2)
    fetcher = following(log)
    fetch_of(fetcher)
    fetcher.received(response(records(batch(0, 5))), 0)
    assert log.batches == [(0, 5, EPOCH)]


def corrupted(built: bytearray) -> bytearray:
    built[-1] ^= 1
    return built


GARBAGE: dict[str, bytes | bytearray] = {
    "nothing whole": b"x" * 10,
    "no batch": b"x" * 100,
    "a wrong CRC": corrupted(batch(3)),
    "below the log end": batch(1),
    "backwards": bytes(batch(5) + batch(4)),
    "of a later epoch": batch(3, epoch=EPOCH + 1),
    "of an earlier epoch": batch(3, epoch=0),
    "without an epoch": batch(3, epoch=-1),
    "behind the last offset": batch(2**63 - 1),
    "half a batch": bytes(batch(3))[:64],
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_not_appended_and_is_logged_once(what: str, caplog: pytest.LogCaptureFixture) -> None:
    log = ListedLog([(0, 3, 1)])
    fetcher = following(log)
    for now_ms in (0, 1000, 2000):
        fetch_of(fetcher, now_ms)
        fetcher.received(response(records(GARBAGE[what])), now_ms)
        assert fetcher.next_request(now_ms + 1) is None
    assert log.batches == [(0, 3, 1)]
    assert len(caplog.messages) == 1


@given(st.binary(max_size=200), st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))
def test_nothing_that_a_leader_sends_raises(data: bytes, index: int, offset: int) -> None:
    log = ListedLog([(0, 3, 1)])
    fetcher = following(log)
    fetch_of(fetcher)
    whole = bytearray(batch(0))
    whole[:8] = struct.pack(">q", offset)
    fetcher.received(
        response(
            PartitionData(index, 0, offset, offset, offset, records=memoryview(data)),
            PartitionData(0, 0, offset, offset, offset, records=memoryview(bytes(whole) + data)),
            PartitionData(0, 0, diverging_epoch=EpochEndOffset(index, offset)),
            PartitionData(0, index),
        ),
        0,
    )
    assert log.batches[:1] in ([], [(0, 3, 1)])


def test_a_replica_that_is_gone_is_not_followed_any_more() -> None:
    log = ListedLog(failure=KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), is_gone=True)
    fetcher = following(log)
    fetch_of(fetcher)
    fetcher.received(response(records(batch(0))), 0)
    assert len(fetcher) == 0
