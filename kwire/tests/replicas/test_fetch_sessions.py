"""Incremental fetch sessions (KIP-227), without a socket or a clock."""

from __future__ import annotations

import itertools

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import NULL_UUID

from kwire.replicas.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MIN_EVICTION_MS,
    CachedPartition,
    FetchContext,
    FetchSessions,
)
from kwire.runtime.futures import ParkedFetch, Waiter


def sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(slots, itertools.count(1).__next__)


def follow(index: int, offset: int = 0, topic: str = "t") -> CachedPartition:
    return CachedPartition((topic, NULL_UUID), index, offset, 1000)


def test_a_request_without_a_session_opens_none() -> None:
    cache = sessions()
    fetch = cache.begin(0, FINAL_EPOCH, [follow(0)], [], now_ms=0)
    assert fetch.session_id == 0
    assert len(cache) == 0


def test_an_incremental_request_follows_all_partitions_named_before() -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0), follow(1)], [], now_ms=0)
    continued = cache.begin(opened.session_id, 1, [follow(1, offset=7), follow(2)], [], now_ms=0)
    assert continued.incremental
    assert [(p.index, p.fetch_offset) for p in continued.partitions] == [(0, 0), (1, 7), (2, 0)]


def test_a_forgotten_partition_is_no_longer_served() -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0), follow(1)], [], now_ms=0)
    continued = cache.begin(opened.session_id, 1, [], [(("t", NULL_UUID), 0)], now_ms=0)
    assert [p.index for p in continued.partitions] == [1]


def test_a_partition_may_be_forgotten_by_another_request_while_one_waits() -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0), follow(1)], [], now_ms=0)
    waiting = cache.begin(opened.session_id, 1, [], [], now_ms=0)
    named = list(waiting.partitions)
    cache.begin(opened.session_id, 2, [], [(("t", NULL_UUID), 0)], now_ms=0)
    assert waiting.session is not None
    for partition in named:
        waiting.session.update_due(partition, has_records=True)
    assert [it.index for it in waiting.partitions] == [1]


def test_a_session_that_follows_nothing_is_closed() -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=0)
    cache.begin(opened.session_id, 1, [], [(("t", NULL_UUID), 0)], now_ms=0)
    assert len(cache) == 0


@pytest.mark.parametrize("epoch", [2, 5])
def test_a_repeated_or_skipped_epoch_is_refused(epoch: int) -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=0)
    with pytest.raises(KafkaError) as refused:
        cache.begin(opened.session_id, epoch, [], [], now_ms=0)
    assert refused.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_session_is_refused_as_after_a_restart() -> None:
    with pytest.raises(KafkaError) as refused:
        sessions().begin(99, 1, [], [], now_ms=0)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_closing_a_session_frees_its_slot() -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=0)
    closed = cache.begin(opened.session_id, FINAL_EPOCH, [], [], now_ms=0)
    assert closed.session_id == 0
    assert len(cache) == 0


def test_a_full_cache_gives_no_session_until_one_was_unused_for_long() -> None:
    cache = sessions(slots=1)
    cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=0)
    assert cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=MIN_EVICTION_MS).session_id == 0
    assert cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=MIN_EVICTION_MS + 1).session_id != 0
    assert len(cache) == 1


def test_a_session_does_not_mix_topic_names_and_ids() -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=0)
    by_id = CachedPartition(("", b"i" * 16), 0, 0, 1000)
    with pytest.raises(KafkaError) as refused:
        cache.begin(opened.session_id, 1, [by_id], [], now_ms=0)
    assert refused.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_only_news_is_sent_and_an_error_is_sent_again() -> None:
    partition = follow(0)

    def is_news(*, high_watermark: int = 5, is_urgent: bool = False) -> bool:
        return partition.is_news(
            has_records=False, high_watermark=high_watermark, log_start_offset=0, is_urgent=is_urgent
        )

    assert is_news()
    assert not is_news()
    assert is_news(high_watermark=6)
    assert is_news(high_watermark=6, is_urgent=True)
    assert is_news(high_watermark=6)


@pytest.mark.parametrize(
    ("offset", "epoch", "is_sent_again"),
    [(8, 4, False), (7, 4, True), (6, 4, True), (8, 5, True)],
    ids=["records were taken", "nothing was taken", "records were cut", "of another leader epoch"],
)
def test_a_reader_that_names_a_partition_again_gets_again_what_it_has_not_taken(
    offset: int, epoch: int, is_sent_again: bool
) -> None:
    cache = sessions()
    partition = CachedPartition(("t", NULL_UUID), 0, 7, 1000, current_leader_epoch=4)
    opened = cache.begin(0, INITIAL_EPOCH, [partition], [], now_ms=0)

    def is_news() -> bool:
        return partition.is_news(has_records=False, high_watermark=8, log_start_offset=0, is_urgent=False)

    assert is_news()
    again = CachedPartition(("t", NULL_UUID), 0, offset, 1000, current_leader_epoch=epoch)
    cache.begin(opened.session_id, 1, [again], [], now_ms=0)
    assert is_news() == is_sent_again


# What rests


class Waited:
    """A partition as sessions see it."""

    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}

    def change(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.wake()


def due(context: FetchContext) -> list[int]:
    return [it.index for it in context.partitions]


def answer(context: FetchContext, places: dict[int, Waited], *, with_records: frozenset[int] = frozenset()) -> None:
    """The partitions in `places` have nothing more for their reader; those of `with_records` have."""
    assert context.session is not None
    for it in list(context.partitions):
        if it.index in places:
            it.rest(places[it.index], None)
        context.session.update_due(it, has_records=it.index in with_records)


def test_what_has_nothing_for_its_reader_is_read_again_only_when_it_has_changed() -> None:
    cache, places = sessions(), {0: Waited(), 1: Waited()}
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0), follow(1), follow(2)], [], now_ms=0)
    answer(opened, places)
    continued = cache.begin(opened.session_id, 1, [], [], now_ms=0)
    assert due(continued) == [2]
    assert not continued.is_empty
    answer(continued, places)
    places[1].change()
    assert due(cache.begin(opened.session_id, 2, [], [], now_ms=0)) == [2, 1]


def test_what_changes_before_it_is_sent_is_read_again() -> None:
    cache, place = sessions(), Waited()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=0)
    assert opened.session is not None
    (partition,) = opened.partitions
    partition.rest(place, None)
    place.change()
    opened.session.update_due(partition, has_records=False)
    assert due(cache.begin(opened.session_id, 1, [], [], now_ms=0)) == [0]


def test_a_change_of_what_rests_wakes_the_fetch_that_waits() -> None:
    cache, place = sessions(), Waited()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=0)
    answer(opened, {0: place})
    waiting = cache.begin(opened.session_id, 1, [], [], now_ms=0)
    assert waiting.session is not None
    parked = waiting.session.parked = ParkedFetch()
    place.change()
    assert parked.is_set
    assert parked.value
    assert due(waiting) == [0]


def test_a_request_that_names_what_rests_has_it_read_again() -> None:
    cache, place = sessions(), Waited()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0), follow(1)], [], now_ms=0)
    answer(opened, {0: place, 1: Waited()})
    assert due(cache.begin(opened.session_id, 1, [follow(0, offset=7)], [], now_ms=0)) == [0]
    assert not place.waiters


def test_a_partition_that_is_named_twice_counts_once() -> None:
    opened = sessions().begin(0, INITIAL_EPOCH, [follow(0, 3), follow(1), follow(0, 5)], [], now_ms=0)
    assert [(it.index, it.fetch_offset) for it in opened.partitions] == [(1, 0), (0, 5)]


def test_busy_partitions_take_turns() -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0), follow(1), follow(2)], [], now_ms=0)
    answer(opened, {}, with_records=frozenset({0}))
    assert due(cache.begin(opened.session_id, 1, [follow(0, offset=7)], [], now_ms=0)) == [1, 2, 0]


@pytest.mark.parametrize("how", ["forgotten", "closed", "evicted"])
def test_nothing_waits_for_a_partition_any_more_that_no_session_has(how: str) -> None:
    cache, place = sessions(slots=1), Waited()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0), follow(1)], [], now_ms=0)
    answer(opened, {0: place})
    assert len(place.waiters) == 1
    if how == "forgotten":
        cache.begin(opened.session_id, 1, [], [(("t", NULL_UUID), 0)], now_ms=0)
    elif how == "closed":
        cache.begin(opened.session_id, FINAL_EPOCH, [], [], now_ms=0)
    else:
        cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=MIN_EVICTION_MS + 1)
    assert not place.waiters


def test_another_reader_of_a_session_has_all_read_again() -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=0, reader="read_committed")
    answer(opened, {0: Waited()})
    assert due(cache.begin(opened.session_id, 1, [], [], now_ms=0, reader="read_committed")) == []
    assert due(cache.begin(opened.session_id, 2, [], [], now_ms=0, reader="read_uncommitted")) == [0]


def test_a_request_of_a_session_ends_the_one_that_waits_on_another_connection() -> None:
    cache = sessions()
    opened = cache.begin(0, INITIAL_EPOCH, [follow(0)], [], now_ms=0)
    assert opened.session is not None
    parked = opened.session.parked = ParkedFetch()
    cache.begin(opened.session_id, 1, [], [], now_ms=0)
    assert parked.is_set
    assert not parked.value
