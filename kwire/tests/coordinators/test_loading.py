"""A coordinator while its partition is loaded, and when the partition goes: brokers in memory whose loads are slow."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire_protocol.messages.end_txn import EndTxnRequest
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.list_transactions import ListTransactionsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_delete import OffsetDeleteRequest
from kwire_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kwire_protocol.messages.sync_group import SyncGroupRequest
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kwire_storage.disk.files import Disk

from kwire.coordinators.loading import Active, Elsewhere, Loading, Slice, Unavailable
from kwire.metadata.controller.partitions.leader_epochs import epochs_behind
from kwire.replicas.partition import Partition
from kwire.replicas.roles import Follower, Leader
from kwire.runtime.futures import at_once
from testkit.fakes.transactions import FakeTransactions, write_marker
from testkit.metadata.harness import FakeClock
from testkit.scenes.broker_in_trio import InTrio, TrioClock, with_broker
from testkit.scenes.offsets_in_transactions import stable_offset, txn_commit
from testkit.scenes.partition_files import log_files

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
COMMITS = 200
SETTINGS = ("transaction.state.log.num.partitions=1",)


class SlowClock(TrioClock):
    """A clock that moves by `slow_ms` at each reading of its monotonic time."""

    slow_ms = 1_000

    def __init__(self) -> None:
        super().__init__()
        self._gone_ms = 0

    def monotonic_ms(self) -> int:
        self._gone_ms += self.slow_ms
        return super().monotonic_ms() + self._gone_ms


def slow(kwire: InTrio, slow_ms: int) -> None:
    assert isinstance(kwire.broker.clock, SlowClock)
    kwire.broker.clock.slow_ms = slow_ms


def commit(offset: int, partition: int = 0, group: str = "g") -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])


def join() -> JoinGroupRequest:
    return JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")])


async def committed(kwire: InTrio, partition: int = 0) -> int:
    answer = await kwire.call(OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [partition])]), 7)
    assert answer.error_code == ErrorCode.NONE
    found: int = answer.topics[0].partitions[0].committed_offset
    return found


async def fill(kwire: InTrio) -> None:
    kwire.create_topic("t")
    for number in range(COMMITS):
        await kwire.call(commit(number), 9)
        await kwire.call(InitProducerIdRequest(f"id{number % 50}", 60_000), 4)


def group_partition(kwire: InTrio) -> Partition:
    return kwire.broker.partitions.find(*at_once(kwire.broker.groups.partition_of("g")))


def state(kwire: InTrio) -> Any:
    return kwire.broker.groups.runtime._states[at_once(kwire.broker.groups.partition_of("g"))[1]]


def while_loading(
    scenario: Callable[[InTrio], Awaitable[None]], before: Callable[[InTrio], Awaitable[None]] = fill
) -> Disk:
    """Runs `scenario` when the broker has restarted, and has not yet read all that `before` left behind."""

    async def begun(kwire: InTrio) -> None:
        assert isinstance(state(kwire), Loading)
        await scenario(kwire)

    return run_slow(begun, run_slow(before, None, slow_ms=0), slow_ms=1_000)


def run_slow(scenario: Callable[[InTrio], Awaitable[None]], disk: Disk | None, *, slow_ms: int) -> Disk:
    """While the clock is slow the group service does not run by itself: it would have loaded all by now."""

    def make_clock() -> SlowClock:
        clock = SlowClock()
        clock.slow_ms = slow_ms
        return clock

    return with_broker(scenario, settings=SETTINGS, disk=disk, make_clock=make_clock, runs_groups=not slow_ms)


async def finish(kwire: InTrio) -> None:
    """Has both services load what they have begun to load."""
    for runtime in (kwire.broker.groups.runtime, kwire.broker.transactions.runtime):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime._load_in_slices)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    slow(kwire, 0)
    assert isinstance(state(kwire), Active)


MARKER = WritableTxnMarker(7, 0, True, [WritableTxnMarkerTopic("__consumer_offsets", [0, 1, 2])], 0)

ANSWERS: list[tuple[Any, int, Callable[[Any], int]]] = [
    (FindCoordinatorRequest(key="g"), 0, lambda it: it.error_code or 0),
    (join(), 9, lambda it: it.error_code),
    (SyncGroupRequest("g", 1, "m"), 3, lambda it: it.error_code),
    (HeartbeatRequest("g", 1, "m"), 4, lambda it: it.error_code),
    (LeaveGroupRequest("g", members=[MemberIdentity("m")]), 5, lambda it: it.error_code),
    (commit(1), 9, lambda it: it.topics[0].partitions[0].error_code),
    (OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]), 7, lambda it: it.error_code),
    (OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]), 1, lambda it: it.topics[0].partitions[0].error_code),
    (OffsetDeleteRequest("g"), 0, lambda it: it.error_code),
    (DescribeGroupsRequest(["g"]), 6, lambda it: it.groups[0].error_code),
    (ListGroupsRequest(), 5, lambda it: it.error_code),
    (DeleteGroupsRequest(["g"]), 2, lambda it: it.results[0].error_code),
    (InitProducerIdRequest("id0", 60_000), 4, lambda it: it.error_code),
    (
        AddPartitionsToTxnRequest([], "id0", 1, 0, [AddPartitionsToTxnTopic("t", [0])]),
        3,
        lambda it: it.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    ),
    (AddOffsetsToTxnRequest("id0", 1, 0, "g"), 3, lambda it: it.error_code),
    (EndTxnRequest("id0", 1, 0, True), 3, lambda it: it.error_code),
    (DescribeTransactionsRequest(["id0"]), 0, lambda it: it.transaction_states[0].error_code),
    (ListTransactionsRequest(), 0, lambda it: it.error_code),
    (txn_commit(5, {("t", 0): 5}), 5, lambda it: it.topics[0].partitions[0].error_code),
    (txn_commit(1, {("t", 0): 5}), 1, lambda it: it.topics[0].partitions[0].error_code),
    (WriteTxnMarkersRequest([MARKER]), 1, lambda it: it.markers[0].topics[0].partitions[0].error_code),
]
AS_KAFKA = {"FindCoordinatorRequest": 0, "HeartbeatRequest": 0, "WriteTxnMarkersRequest": 6}


def test_requests_are_answered_as_by_kafka_while_a_partition_is_loaded() -> None:
    async def scenario(kwire: InTrio) -> None:
        MARKER.topics[0].partition_indexes = [group_partition(kwire).index]
        for request, version, error_of in ANSWERS:
            name = type(request).__name__
            expected = AS_KAFKA.get(name, LOADING)
            if name == "TxnOffsetCommitRequest" and version < 2:
                expected = ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert error_of(await kwire.call(request, version)) == expected, f"{name} v{version}"
        assert isinstance(state(kwire), Loading)

    while_loading(scenario)


def test_when_the_log_is_read_to_its_end_the_coordinator_is_active() -> None:
    async def scenario(kwire: InTrio) -> None:
        await finish(kwire)
        assert await committed(kwire) == COMMITS - 1
        assert (await kwire.call(InitProducerIdRequest("id0", 60_000), 4)).producer_epoch == COMMITS // 50
        assert (await kwire.call(commit(7), 9)).topics[0].partitions[0].error_code == ErrorCode.NONE
        assert await committed(kwire) == 7

    while_loading(scenario)


def test_what_is_small_is_loaded_before_anybody_can_connect() -> None:
    async def after(kwire: InTrio) -> None:
        assert isinstance(state(kwire), Active)
        assert await committed(kwire) == COMMITS - 1

    run_slow(after, run_slow(fill, None, slow_ms=0), slow_ms=1)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_marker_that_comes_while_the_partition_is_loaded_counts(is_committed: bool) -> None:
    async def before(kwire: InTrio) -> None:
        kwire.create_topic("t")
        FakeTransactions().stand_in(kwire.broker)
        await kwire.call(txn_commit(5, {("t", 0): 1_000}), 5)
        for number in range(COMMITS):
            await kwire.call(commit(number, partition=1), 9)

    async def scenario(kwire: InTrio) -> None:
        partition = group_partition(kwire)
        write_marker(kwire.broker, partition.topic, partition.index, committed=is_committed, producer_id=7, epoch=0)
        assert isinstance(state(kwire), Loading)
        await finish(kwire)
        assert await stable_offset(kwire) == (1_000 if is_committed else -1)

    while_loading(scenario, before)


def test_offsets_of_a_topic_that_is_deleted_meanwhile_are_forgotten() -> None:
    async def scenario(kwire: InTrio) -> None:
        await kwire.call(DeleteTopicsRequest([DeleteTopicState("t")], [], 1_000), 6)
        kwire.create_topic("t")
        assert isinstance(state(kwire), Loading)
        await finish(kwire)
        assert await committed(kwire) == -1

    while_loading(scenario)


def test_what_is_not_read_yet_may_be_compacted() -> None:
    async def scenario(kwire: InTrio) -> None:
        partition = group_partition(kwire)
        before = partition.log.size_in_bytes
        log_files(partition).roll(kwire.broker.clock.now_ms())
        assert await kwire.broker.cleaner.clean_all() >= 1
        assert partition.log.size_in_bytes < before / 2
        assert isinstance(state(kwire), Loading)
        await finish(kwire)
        assert await committed(kwire) == COMMITS - 1

    while_loading(scenario)


def test_a_load_gives_way_after_each_slice() -> None:
    async def scenario(kwire: InTrio) -> None:
        turns = 0

        async def beside() -> None:
            nonlocal turns
            while isinstance(state(kwire), Loading):
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(beside)
            nursery.start_soon(finish, kwire)
        assert turns >= COMMITS // 32 - 2

    while_loading(scenario)


def test_a_slice_is_over_when_its_time_is() -> None:
    clock = FakeClock()
    piece = Slice(clock, 3)
    clock.time_ms += 2
    assert not any(piece.is_over() for _ in range(1_000))
    clock.time_ms += 1
    assert any(piece.is_over() for _ in range(32))


@pytest.mark.parametrize("is_large", [False, True])
def test_only_a_load_of_several_slices_keeps_the_garbage_that_exists_then(is_large: bool) -> None:
    class Knot:
        """An object that refers to itself, so that only the garbage collector removes it."""

        def __init__(self) -> None:
            self.itself = self

    async def scenario(kwire: InTrio) -> None:
        slow(kwire, 1_000 if is_large else 0)
        knot = Knot()
        seen = weakref.ref(knot)
        del knot
        gc.disable()
        await finish(kwire)
        gc.enable()
        gc.collect()
        assert (seen() is not None) == is_large

    try:
        while_loading(scenario)
    finally:
        gc.enable()
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def test_a_log_that_goes_offline_while_it_is_loaded_has_no_coordinator() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.broker.take_offline(kwire.broker.log_dirs.dirs[0], OSError(5, "the disk is gone"))
        assert isinstance(state(kwire), Unavailable)
        assert (await kwire.call(FindCoordinatorRequest(key="g"), 0)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await kwire.call(join(), 9)).error_code == ErrorCode.NOT_COORDINATOR

    while_loading(scenario)


# Elections


def elect(kwire: InTrio) -> None:
    """Begins another leader epoch of the group's partition."""
    partition = group_partition(kwire)
    epochs = {(partition.topic_id, partition.index): partition.leader().leader_epoch}
    at_once(kwire.broker.metadata.change(epochs_behind, epochs))


async def error_of_a_waiting_join(kwire: InTrio, happens: Callable[[], None]) -> int:
    """Returns the error that a member gets that waits in JoinGroup meanwhile."""
    codes: list[int] = []

    async def wait() -> None:
        codes.append((await kwire.call(join(), 3)).error_code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        assert codes == []
        happens()
        await trio.sleep(1)
    return codes[0]


def test_another_leader_epoch_sends_members_away_and_loads_again() -> None:
    async def scenario(kwire: InTrio) -> None:
        await fill(kwire)
        first = state(kwire)
        assert await error_of_a_waiting_join(kwire, lambda: elect(kwire)) == ErrorCode.NOT_COORDINATOR
        assert isinstance(state(kwire), Active)
        assert state(kwire).leader_epoch == first.leader_epoch + 1 == group_partition(kwire).leader().leader_epoch
        assert state(kwire).shard is not first.shard
        assert await committed(kwire) == COMMITS - 1

    with_broker(scenario, settings=["group.initial.rebalance.delay.ms=5000"])


def test_an_append_that_finds_another_leader_unloads_the_coordinator() -> None:
    async def scenario(kwire: InTrio) -> None:
        await fill(kwire)
        partition = group_partition(kwire)
        refused: list[int] = []
        names = (f"neighbour-{number}" for number in range(100))
        neighbour = next(
            name for name in names if at_once(kwire.broker.groups.partition_of(name))[1] == partition.index
        )

        async def lose_and_commit() -> None:
            partition.take_role(Follower(99, 1))
            answer = await kwire.call(commit(1, group=neighbour), 9)
            refused.append(answer.topics[0].partitions[0].error_code)

        async with trio.open_nursery() as nursery:

            def happens() -> None:
                nursery.start_soon(lose_and_commit)

            assert await error_of_a_waiting_join(kwire, happens) == ErrorCode.NOT_COORDINATOR
        assert refused == [ErrorCode.NOT_COORDINATOR]
        assert isinstance(state(kwire), Elsewhere)
        partition.take_role(Leader(1, 2, (1,), (1,)))
        kwire.broker.groups.runtime.follow_leader(partition.index)
        await trio.testing.wait_all_tasks_blocked()
        assert await committed(kwire) == COMMITS - 1

    with_broker(scenario, settings=["group.initial.rebalance.delay.ms=5000"])


def test_an_append_in_an_epoch_that_was_not_loaded_is_refused() -> None:
    async def scenario(kwire: InTrio) -> None:
        await fill(kwire)
        partition = group_partition(kwire)
        end = partition.log_end_offset
        partition.take_role(Leader(1, partition.leader().leader_epoch + 1, (1,), (1,)))
        assert (await kwire.call(commit(1), 9)).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert partition.log_end_offset == end

    with_broker(scenario)
