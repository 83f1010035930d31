"""TxnOffsetCommit as clients see it, and what is left of it after a restart."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
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
from kwire_protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from kwire_protocol.wire import Uuid

from devtools.suite.cases import naming
from kwire.runtime.futures import Future, at_once
from testkit.fakes.transactions import FakeTransactions
from testkit.scenes.broker_in_trio import InTrio, with_broker
from testkit.scenes.offsets_in_transactions import end_transaction, stable_offset, txn_commit
from testkit.scenes.partition_files import log_files
from testkit.scenes.server_in_trio import ServerInTrio, with_server

VERSIONS = range(7)
NO_SUCH_TOPIC: Uuid = b"n" * 16
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def errors(response: TxnOffsetCommitResponse) -> dict[tuple[str | Uuid, int], ErrorCode]:
    return {
        (topic.name or topic.topic_id, it.partition_index): ErrorCode(it.error_code)
        for topic in response.topics
        for it in topic.partitions
    }


def plain_commit(offset: int, partition: int = 0) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])


@pytest.mark.parametrize(
    ("refusal", "returned", "returned_before", "since"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, 4),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None, 2),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None, 2),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, None, 0),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, None, 0),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None, 0),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, None, 0),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR, None, 0),
    ],
)
def test_the_coordinators_refusal_is_returned_as_an_error_of_the_version(
    refusal: ErrorCode, returned: ErrorCode, returned_before: ErrorCode | None, since: int
) -> None:
    async def scenario(kwire: InTrio) -> None:
        ids = {"t": kwire.create_topic("t")}
        for version in VERSIONS:
            future: Future[KafkaError | None] = Future()
            future.set(KafkaError(refusal))
            FakeTransactions([refusal, future]).stand_in(kwire.broker)
            error = returned if version >= since else returned_before or ErrorCode.COORDINATOR_NOT_AVAILABLE
            t = ids["t"] if version >= 6 else "t"
            for _ in range(2):
                with naming(f"v{version}"):
                    answer = await kwire.call(txn_commit(version, {("t", 0): 5, ("t", 9): 6}, ids=ids), version)
                    assert errors(answer) == {(t, 0): error, (t, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
                    assert await stable_offset(kwire) == -1

    with_broker(scenario)


def test_nothing_is_appended_before_the_coordinator_has_agreed() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        await kwire.call(plain_commit(1), 9)
        future: Future[KafkaError | None] = Future()
        transactions = FakeTransactions([future]).stand_in(kwire.broker)
        partition = kwire.broker.partitions.find(*at_once(kwire.broker.groups.partition_of("g")))
        before = partition.log_end_offset
        answers: list[Any] = []

        async def commit() -> None:
            answers.append(await kwire.call(txn_commit(5, {("t", 0): 5}), 5))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            await trio.sleep(1)
            assert (partition.log_end_offset, await stable_offset(kwire)) == (before, 1)
            future.set(None)
        assert errors(answers[0]) == {("t", 0): ErrorCode.NONE}
        assert [it.adds for it in transactions.enlistments] == [True]
        assert (partition.log_end_offset, await stable_offset(kwire)) == (before + 1, UNSTABLE)

    with_broker(scenario)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE])
def test_when_a_marker_comes_during_the_request_to_the_coordinator_it_is_sent_again(error: ErrorCode) -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        at_once(kwire.broker.groups.partition_of("g"))
        future: Future[KafkaError | None] = Future()
        transactions = FakeTransactions([future, error or None]).stand_in(kwire.broker)
        answers: list[Any] = []

        async def commit() -> None:
            answers.append(await kwire.call(txn_commit(5, {("t", 0): 5}), 5))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            await trio.sleep(1)
            end_transaction(kwire.broker, committed=True)
            future.set(None)
        assert errors(answers[0]) == {("t", 0): error}
        assert len(transactions.enlistments) == 2
        assert await stable_offset(kwire) == (-1 if error else UNSTABLE)

    with_broker(scenario)


def test_a_fenced_producer_is_refused_and_that_is_no_news_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        FakeTransactions().stand_in(kwire.broker)
        await kwire.call(txn_commit(5, {("t", 0): 5}), 5)
        end_transaction(kwire.broker, committed=True, epoch=1)
        answer = await kwire.call(txn_commit(5, {("t", 0): 6}), 5)
        assert errors(answer) == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
        assert await stable_offset(kwire) == 5
        assert (await kwire.call(txn_commit(5, {("t", 0): 7}, epoch=1), 5)).topics[0].partitions[0].error_code == 0

    with caplog.at_level(logging.WARNING, logger="kwire"):
        with_broker(scenario)
    assert caplog.messages == []


def test_a_restart_restores_what_was_committed_aborted_and_open() -> None:
    async def first(kwire: InTrio) -> None:
        kwire.create_topic("t", 4)
        FakeTransactions().stand_in(kwire.broker)
        await kwire.call(plain_commit(1), 9)
        await kwire.call(txn_commit(5, {("t", 0): 10, ("t", 1): 11}), 5)
        end_transaction(kwire.broker, committed=False)
        await kwire.call(txn_commit(5, {("t", 2): 12}), 5)
        end_transaction(kwire.broker, committed=True)
        await kwire.call(txn_commit(5, {("t", 3): 13}), 5)

    async def second(kwire: InTrio) -> None:
        found = [await stable_offset(kwire, index) for index in range(4)]
        assert found == [1, -1, 12, UNSTABLE]
        end_transaction(kwire.broker, committed=True)
        assert await stable_offset(kwire, 3) == 13

    async def third(kwire: InTrio) -> None:
        assert [await stable_offset(kwire, index) for index in range(4)] == [1, -1, 12, 13]

    with_broker(third, disk=with_broker(second, disk=with_broker(first)))


def test_a_marker_that_comes_before_the_groups_are_needed_is_found_when_they_are() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        FakeTransactions().stand_in(kwire.broker)
        await kwire.call(txn_commit(5, {("t", 0): 5}), 5)
        kwire.broker.groups.runtime.forget_topic()
        end_transaction(kwire.broker, committed=True)
        assert await stable_offset(kwire) == 5

    with_broker(scenario)


def test_a_marker_in_a_partition_that_is_offline_is_nobodys_business() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        FakeTransactions().stand_in(kwire.broker)
        await kwire.call(txn_commit(5, {("t", 0): 5}), 5)
        _, index = at_once(kwire.broker.groups.partition_of("g"))
        kwire.broker.groups.runtime.forget_partitions([index])
        kwire.broker.partitions.find("__consumer_offsets", index).on_marker(7, True)
        answer = await kwire.call(txn_commit(5, {("t", 0): 6}), 5)
        assert errors(answer) == {("t", 0): ErrorCode.NOT_COORDINATOR}

    with_broker(scenario)


def test_what_is_pending_for_a_deleted_topic_goes_with_it() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        FakeTransactions().stand_in(kwire.broker)
        await kwire.call(txn_commit(5, {("t", 0): 5}), 5)
        await kwire.call(DeleteTopicsRequest([DeleteTopicState("t")], [], 1_000), 6)
        kwire.create_topic("t")
        assert await stable_offset(kwire) == -1
        end_transaction(kwire.broker, committed=True)
        assert await stable_offset(kwire) == -1

    with_broker(scenario)


def replayed_records(kwire: InTrio, index: int) -> int:
    return sum(len([*batch]) for _, batch in kwire.broker.groups.runtime.topic.replay(index))


def test_compaction_leaves_what_counts_and_what_is_open_for_the_next_start() -> None:
    async def first(kwire: InTrio) -> None:
        kwire.create_topic("t", 4)
        FakeTransactions().stand_in(kwire.broker)
        partition = kwire.broker.partitions.find(*at_once(kwire.broker.groups.partition_of("g")))
        for offset in range(10):
            await kwire.call(txn_commit(5, {("t", 0): offset, ("t", 1): offset}), 5)
            end_transaction(kwire.broker, committed=True)
        await kwire.call(plain_commit(1, partition=2), 9)
        await kwire.call(txn_commit(5, {("t", 0): 77, ("t", 2): 77}), 5)
        end_transaction(kwire.broker, committed=False)
        await kwire.call(plain_commit(20, partition=1), 9)
        log_files(partition).roll(kwire.broker.clock.now_ms())
        before = replayed_records(kwire, partition.index)
        assert await kwire.broker.cleaner.clean_all() == 1
        await kwire.call(txn_commit(5, {("t", 3): 30}, producer_id=8), 5)
        log_files(partition).roll(kwire.broker.clock.now_ms())
        assert replayed_records(kwire, partition.index) < before / 2

    async def second(kwire: InTrio) -> None:
        assert [await stable_offset(kwire, index) for index in range(4)] == [9, 20, 1, UNSTABLE]
        end_transaction(kwire.broker, committed=True, producer_id=8)
        partition = kwire.broker.partitions.find(*at_once(kwire.broker.groups.partition_of("g")))
        log_files(partition).roll(kwire.broker.clock.now_ms())
        # Markers whose transactions are compacted away go after delete.retention.ms, those with records left do not.
        for _ in range(3):
            await trio.sleep(2 * 86_400)
            await kwire.call(plain_commit(20, partition=1), 9)
            log_files(partition).roll(kwire.broker.clock.now_ms())
            await kwire.broker.cleaner.clean_all()

    async def third(kwire: InTrio) -> None:
        assert [await stable_offset(kwire, index) for index in range(4)] == [9, 20, 1, 30]

    # For ever: trio's mock clock runs on while the cleaner's threads work, by months where the machine is busy.
    settings = ["log.cleaner.min.cleanable.ratio=0", "offsets.retention.minutes=2147483647"]
    disk = with_broker(first, settings=settings)
    with_broker(third, disk=with_broker(second, disk=disk, settings=settings))


def test_over_a_socket_the_requests_behind_a_commit_wait_for_its_coordinator() -> None:
    async def scenario(server: ServerInTrio) -> None:
        broker = server.broker
        future: Future[KafkaError | None] = Future()
        FakeTransactions([future]).stand_in(broker)
        client = await server.connect()
        wanted = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])],
            require_stable=True,
        )
        await client.send((txn_commit(5, {("t", 0): 5}), 5), (wanted, 8))
        await trio.sleep(1)
        assert not client.has_answer
        future.set(None)
        assert errors((await client.read(28, 5))[1]) == {("t", 0): ErrorCode.NONE}
        fetched = (await client.read(9, 8))[1]
        assert fetched.groups[0].topics[0].partitions[0].error_code == UNSTABLE
        end_transaction(broker, committed=True)
        fetched = await client.call(wanted, 8)
        assert fetched.groups[0].topics[0].partitions[0].committed_offset == 5

    with_server(scenario)
