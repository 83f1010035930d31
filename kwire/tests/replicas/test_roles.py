"""A node's role for a partition, and its effects: who may append, how far replicas agree, and notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.config import LogConfig
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.log import Log

from kwire.config.server import load_config
from kwire.handlers import fetch
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.node.broker import Broker
from kwire.replicas.acknowledging import ALL_IN_SYNC
from kwire.replicas.flush_gate import FlushGate
from kwire.replicas.partition import Partition, read_bound
from kwire.replicas.roles import Absent, Follower, FollowerState, LastFetch, Leader, NotLeaderError, role_of
from kwire.replicas.validation import TopicRules
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import ParkedFetch, at_once
from testkit.basics.futures import value_of
from testkit.scenes.partition_files import at_hand

THIS, SECOND, THIRD, STRANGER = 1, 2, 3, 9
ALL = (THIS, SECOND, THIRD)


class NoFlush:
    def flush_soon(self, gate: FlushGate) -> None: ...

    def flush_within(self, gate: FlushGate, delay_ms: int) -> None: ...


def new_partition(*, high_watermark: int = 0, disk: MemoryDisk | None = None) -> Partition:
    log = Log.open(disk or MemoryDisk(), "t-0", LogConfig(), now_ms=0, clean_shutdown=True)
    return Partition("t", bytes(16), 0, log, TopicRules(), NoFlush(), high_watermark=high_watermark)


def leader(*isr: int, replicas: tuple[int, ...] = ALL, epoch: int = 1) -> Leader:
    role = role_of(THIS, leader_id=THIS, leader_epoch=epoch, replicas=replicas, isr=isr)
    assert isinstance(role, Leader)
    return role


def leading(*isr: int) -> Partition:
    partition = new_partition()
    partition.take_role(leader(*isr))
    return partition


def append(partition: Partition, count: int = 1, *, acks: int = 1) -> int:
    """Appends, and returns the last offset."""
    batch = memoryview(bytearray(build_batch([Record(delta, 0, None, b"x") for delta in range(count)])))
    return partition.append(batch, read_header(batch), acks=acks, now_ms=0).last_offset


def refusal(action: Callable[[], Any]) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        action()
    return raised.value


def test_the_registration_shows_who_leads_who_follows_and_who_is_absent() -> None:
    def role(node_id: int) -> object:
        return role_of(node_id, leader_id=SECOND, leader_epoch=7, replicas=[SECOND, THIS], isr=[SECOND])

    assert isinstance(role(SECOND), Leader)
    assert role(THIS) == Follower(SECOND, 7)
    assert role(STRANGER) == Absent(SECOND, 7)
    leaderless = role_of(THIS, leader_id=-1, leader_epoch=8, replicas=[THIS, SECOND], isr=[SECOND])
    assert leaderless == Follower(-1, 8)


@pytest.mark.parametrize("role", [Follower(SECOND, 7), Absent(SECOND, 7)])
def test_every_way_to_append_is_refused_by_all_but_the_leader(role: Follower | Absent) -> None:
    partition = leading(THIS)
    partition.take_role(role)
    batch = memoryview(bytearray(build_batch([Record(0, 0, None, b"x")])))
    ways: list[Callable[[], object]] = [
        lambda: append(partition),
        lambda: partition.append_own(batch, read_header(batch), now_ms=0),
        lambda: partition.write_marker(
            producer_id=5, producer_epoch=0, committed=True, coordinator_epoch=0, transaction_version=0, now_ms=0
        ),
        lambda: partition.delete_records_before(-1, now_ms=0),
    ]
    for way in ways:
        error = refusal(way)
        assert isinstance(error, NotLeaderError)
        assert (error.code, error.leader_id, error.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, SECOND, 7)
    assert partition.log_end_offset == 0


@pytest.mark.parametrize("wanted", [3, 5])
def test_a_client_that_is_behind_or_ahead_of_the_leader_epoch_gets_an_error_from_leader_and_follower(
    wanted: int,
) -> None:
    behind = wanted == 3
    for role in (leader(THIS, epoch=4), Follower(SECOND, 4)):
        partition = new_partition()
        partition.take_role(role)
        error = refusal(lambda it=partition: it.leader(wanted))  # type: ignore[misc]
        assert error.code == (ErrorCode.FENCED_LEADER_EPOCH if behind else ErrorCode.UNKNOWN_LEADER_EPOCH)
        assert isinstance(error, NotLeaderError) == behind


def test_what_the_broker_writes_itself_needs_the_replicas_in_sync_too() -> None:
    partition = leading(THIS)
    partition.rules = TopicRules(min_insync_replicas=2)
    batch = memoryview(bytearray(build_batch([Record(0, 0, None, b"x")])))
    error = refusal(lambda: partition.append_own(batch, read_header(batch), now_ms=0))
    assert error.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert error.message == "t-0 has 1 replicas in sync, min.insync.replicas requires 2"


def test_a_follower_that_waits_for_records_is_woken_before_they_are_committed() -> None:
    partition = leading(THIS, SECOND)
    parked = ParkedFetch()
    partition.waiters[parked] = None
    append(partition)
    assert partition.high_watermark == 0
    assert parked.is_set


def test_alone_the_leader_has_committed_what_it_has() -> None:
    partition = leading(THIS)
    last = append(partition, 3, acks=ALL_IN_SYNC)
    assert partition.high_watermark == 3
    assert partition.when_committed(last, ALL_IN_SYNC) is None


def test_the_high_watermark_is_what_the_slowest_replica_in_sync_has() -> None:
    partition = leading(*ALL)
    append(partition, 5)
    assert partition.high_watermark == 0, "nothing is known of the followers yet"
    partition.note_fetch(SECOND, 5)
    assert partition.high_watermark == 0
    partition.note_fetch(THIRD, 2)
    assert partition.high_watermark == 2
    partition.note_fetch(THIRD, 5)
    assert partition.high_watermark == 5
    append(partition)
    assert partition.high_watermark == 5


def test_a_replica_that_leaves_the_isr_holds_nothing_back_and_one_that_joins_does() -> None:
    partition = leading(*ALL)
    append(partition, 5)
    partition.note_fetch(SECOND, 5)
    partition.take_role(leader(THIS, SECOND))
    assert partition.high_watermark == 5, "what the second has fetched in this epoch still counts"
    partition.take_role(leader(*ALL))
    append(partition)
    partition.note_fetch(SECOND, 6)
    assert partition.high_watermark == 5
    partition.note_fetch(THIRD, 6)
    assert partition.high_watermark == 6


def test_in_a_new_leader_epoch_the_followers_have_to_fetch_again() -> None:
    partition = leading(THIS, SECOND)
    append(partition)
    partition.note_fetch(SECOND, 1)
    partition.note_fetch(SECOND, 9)
    partition.take_role(leader(THIS, SECOND, epoch=2))
    append(partition)
    assert partition.high_watermark == 1
    partition.note_fetch(SECOND, 2)
    assert partition.high_watermark == 2


@given(st.lists(st.one_of(st.just("append"), st.tuples(st.sampled_from([SECOND, THIRD]), st.integers(0, 20)))))
def test_the_high_watermark_only_rises_and_never_above_what_all_in_sync_have(steps: list[Any]) -> None:
    partition = leading(*ALL)
    fetched = {SECOND: 0, THIRD: 0}
    for step in steps:
        before = partition.high_watermark
        if step == "append":
            append(partition)
        else:
            replica_id, offset = step
            fetched[replica_id] = max(fetched[replica_id], min(offset, partition.log_end_offset))
            partition.note_fetch(replica_id, fetched[replica_id])
        assert before <= partition.high_watermark <= min(*fetched.values(), partition.log_end_offset)


def test_the_high_watermark_of_the_last_checkpoint_counts_until_the_followers_have_fetched() -> None:
    disk = MemoryDisk()
    log = Log.open(disk, "t-0", LogConfig(), now_ms=0, clean_shutdown=True)
    for _ in range(5):
        batch = memoryview(bytearray(build_batch([Record(0, 0, None, b"x")])))
        log.append(batch, read_header(batch), leader_epoch=1, now_ms=0)
    log.close(clean=True)
    assert new_partition(high_watermark=9, disk=disk).high_watermark == 5, "the log may have been cut since"
    partition = new_partition(high_watermark=3, disk=disk)
    partition.take_role(leader(*ALL))
    assert partition.high_watermark == 3
    partition.take_role(leader(THIS, replicas=(THIS,), epoch=2))
    assert partition.high_watermark == 5, "alone, the log is all there is"


def test_with_acks_all_a_producer_waits_for_the_replicas_in_sync_and_with_one_it_does_not() -> None:
    partition = leading(THIS, SECOND)
    partition.note_fetch(SECOND, 0)
    last = append(partition, 2, acks=ALL_IN_SYNC)
    assert partition.when_committed(last, 1) is None
    assert partition.when_committed(last, 0) is None
    waiting = partition.when_committed(last, ALL_IN_SYNC)
    assert waiting is not None
    partition.note_fetch(SECOND, 1)
    assert not waiting.is_set
    partition.note_fetch(SECOND, 2)
    assert value_of(waiting) is None


def test_what_is_committed_by_too_few_replicas_is_not_acknowledged() -> None:
    partition = leading(THIS, SECOND)
    partition.rules = TopicRules(min_insync_replicas=2)
    waiting = partition.when_committed(append(partition, acks=ALL_IN_SYNC), ALL_IN_SYNC)
    assert waiting is not None
    partition.take_role(leader(THIS))
    error = value_of(waiting)
    assert error is not None
    assert error.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_the_high_watermark_stays_while_too_few_replicas_are_in_sync() -> None:
    partition = leading(THIS, SECOND)
    partition.configure(TopicRules(min_insync_replicas=2), partition.log.config)
    append(partition, 2)
    partition.note_fetch(SECOND, 1)
    assert partition.high_watermark == 1
    partition.take_role(leader(THIS))
    append(partition, acks=1)
    assert partition.high_watermark == 1, "a consumer reads only what enough replicas have"
    partition.configure(TopicRules(min_insync_replicas=1), partition.log.config)
    assert partition.high_watermark == 3


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda it: it.take_role(Follower(SECOND, 2)), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda it: it.close(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda it: it.take_offline(), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_whoever_waits_for_a_leader_that_leads_no_longer_gets_an_error(
    leave: Callable[[Partition], None], code: ErrorCode
) -> None:
    partition = leading(THIS, SECOND)
    waiting = partition.when_committed(append(partition), ALL_IN_SYNC)
    parked = ParkedFetch()
    partition.waiters[parked] = None
    assert waiting is not None
    leave(partition)
    error = value_of(waiting)
    assert error is not None
    assert error.code == code
    assert parked.is_set
    late = partition.when_committed(0, ALL_IN_SYNC)
    assert late is not None
    assert (value_of(late) or KafkaError(ErrorCode.NONE)).code == code


def test_each_kind_of_reader_has_its_own_bound() -> None:
    partition = leading(THIS, SECOND)
    append(partition, 2)
    partition.note_fetch(SECOND, 2)
    transactional = memoryview(
        bytearray(
            build_batch(
                [Record(0, 0, None, b"x")], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
            )
        )
    )
    partition.append(transactional, read_header(transactional), acks=1, now_ms=0)
    partition.note_fetch(SECOND, 3)
    append(partition)
    consumer, isolated, follower = read_bound(-1, 0), read_bound(-1, 1), read_bound(SECOND, 1)
    assert (isolated(partition), consumer(partition), follower(partition)) == (2, 3, 4)


def test_an_offset_between_the_high_watermark_and_the_end_is_empty_and_behind_the_end_is_out_of_range() -> None:
    partition = leading(THIS, SECOND)
    append(partition, 5)
    partition.note_fetch(SECOND, 2)
    for offset in range(2, 6):
        read = partition.read(offset, max_bytes=1000, max_offset=partition.high_watermark, min_one_batch=True)
        assert at_hand(read).size == 0
    beyond = refusal(lambda: partition.read(6, max_bytes=1000, max_offset=2, min_one_batch=True))
    assert beyond.code == ErrorCode.OFFSET_OUT_OF_RANGE


def fetched(broker: Broker, replica_id: int, offset: int) -> Any:
    named = FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=10_000)])
    request = FetchRequest(replica_id=replica_id, max_bytes=10_000, min_bytes=0, topics=[named])
    response: Any = bound(fetch.handle, broker)(request, Context("host", "127.0.0.1", 9092, api_version=12))
    return response.responses[0].partitions[0]


def test_a_follower_reads_to_the_end_of_the_log_and_moves_the_high_watermark_by_that() -> None:
    broker = Broker.open(load_config(), MemoryDisk(), SystemClock())
    at_once(broker.metadata.change(auto_create_topic, "t"))
    partition = broker.partitions.find("t", 0)
    partition.take_role(leader(THIS, SECOND, replicas=(THIS, SECOND)))
    partition.note_fetch(SECOND, 0)
    append(partition, 3)
    assert (fetched(broker, -1, 0).records or b"") == b""
    answer = fetched(broker, SECOND, 0)
    assert answer.records.size == partition.log.size_in_bytes
    assert (answer.high_watermark, partition.high_watermark) == (0, 0)
    assert fetched(broker, SECOND, 3).high_watermark == 3
    assert fetched(broker, -1, 0).records.size == partition.log.size_in_bytes
    assert fetched(broker, STRANGER, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched(broker, SECOND, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.high_watermark == 3
    broker.close()


@given(st.lists(st.tuples(st.sampled_from(["append", "fetch", "another session"]), st.integers(0, 1000)), max_size=30))
def test_a_follower_that_rests_in_a_session_is_caught_up_by_each_fetch(steps: list[tuple[str, int]]) -> None:
    """It counts as if each fetch named the partition, which is what Kafka looks at."""
    named, resting = FollowerState(), FollowerState()
    session, end, now_ms, is_due = LastFetch(), 0, 0, True
    for step, delay_ms in steps:
        now_ms += delay_ms
        if step == "append":
            end += 1
            resting.stir(session)
            is_due = True
        else:
            if step == "another session":
                session, is_due = LastFetch(), True
            session.time_ms = now_ms
            # It has what there was at its fetch before: each answer brings all.
            offset = named._end_at_last_fetch if named._end_at_last_fetch >= 0 else 0
            named.fetched(offset, 0, end, now_ms)
            if is_due:
                resting.fetched(offset, 0, end, now_ms)
                is_due = offset != end
                if not is_due:
                    resting.rest(session)
        for max_lag_ms in (0, 500, 2000):
            assert resting.is_caught_up(end, now_ms, max_lag_ms) == named.is_caught_up(end, now_ms, max_lag_ms)
        assert resting.last_caught_up_ms == named.last_caught_up_ms


def test_a_session_that_is_given_up_does_not_affect_a_partition_that_rests_in_another_one() -> None:
    follower, earlier, session = FollowerState(), LastFetch(5), LastFetch(10)
    follower.fetched(3, 0, 3, 5)
    follower.rest(earlier)
    follower.fetched(3, 0, 3, 10)
    follower.rest(session)
    follower.stir(earlier)
    session.time_ms = 20
    assert follower.last_caught_up_ms == 20
