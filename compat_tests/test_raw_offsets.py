"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit for a group without members.

The modules of each kind of group have the requests of members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire_protocol.wire import Uuid

from testkit.clients.transactions.raw import CLASSIC_END, NEWEST_END, RawProducer
from testkit.raw import groups
from testkit.raw.client import RawClient
from testkit.raw.topic_ids import topic_id
from testkit.servers import brokers
from testkit.servers.brokers import Broker

E = ErrorCode
NO_SUCH_TOPIC = "there-is-no-such-topic"
NO_SUCH_ID: Uuid = b"n" * 16
FIRST_COMMIT_WITH_IDS, FIRST_FETCH_WITH_IDS, FIRST_TXN_COMMIT_WITH_IDS = 10, 10, 6
FIRST_FETCH_OF_GROUPS = 8
TXN_COMMIT_VERSIONS = range(7 if brokers.IS_4_4 else 6)
FIRST_TXN_COMMIT_THAT_ADDS = 5
NEVER = (E.NONE, -1)

Ref = str | Uuid
"""What a request calls a topic."""

pytestmark = pytest.mark.asks_one_node


@pytest.fixture(scope="module")
def _served(broker: Broker) -> None:
    groups.wait_until_served(broker.bootstrap)


@pytest.fixture
def client(broker: Broker, _served: None) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def producer(client: RawClient, transactional_id: str) -> RawProducer:
    return RawProducer.initialized(client, transactional_id)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=2)


def refs(client: RawClient, topic: str, *, by_id: bool) -> tuple[Ref, Ref]:
    """Returns the topic's reference, and that of a topic that does not exist."""
    return (topic_id(client, topic), NO_SUCH_ID) if by_id else (topic, NO_SUCH_TOPIC)


def named(ref: Ref) -> dict[str, Any]:
    return {"name": ref} if isinstance(ref, str) else {"topic_id": ref}


def errors(answer: Any) -> dict[tuple[Ref, int], ErrorCode]:
    """Returns the error of each partition; no topic may be there twice."""
    found = {topic.name or topic.topic_id: topic.partitions for topic in answer.topics}
    assert len(found) == len(answer.topics)
    return {(ref, it.partition_index): E(it.error_code) for ref, partitions in found.items() for it in partitions}


# OffsetCommit


def commit(
    client: RawClient, version: int, group: str, offsets: Mapping[tuple[Ref, int], int]
) -> dict[tuple[Ref, int], ErrorCode]:
    topics: dict[Ref, OffsetCommitRequestTopic] = {}
    for (ref, index), offset in offsets.items():
        topic = topics.setdefault(ref, OffsetCommitRequestTopic(**named(ref)))
        topic.partitions.append(OffsetCommitRequestPartition(index, offset, 3 if version >= 6 else -1, "note"))
    return errors(client.call(OffsetCommitRequest(group, topics=[*topics.values()]), version))


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_of_partitions_that_exist(
    client: RawClient, group: str, topic: str, version: int
) -> None:
    by_id = version >= FIRST_COMMIT_WITH_IDS
    t, missing = refs(client, topic, by_id=by_id)
    unknown = E.UNKNOWN_TOPIC_ID if by_id else E.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(client, version, group, {(missing, 0): 1, (t, 0): 2, (t, 5): 3, (t, 1): 4}) == {
        (missing, 0): unknown,
        (t, 0): E.NONE,
        (t, 5): E.UNKNOWN_TOPIC_OR_PARTITION,
        (t, 1): E.NONE,
    }
    assert commit(client, version, group, {(missing, 0): 1}) == {(missing, 0): unknown}
    assert fetched(client, group, topic) == [(E.NONE, 2), (E.NONE, 4)]


# OffsetFetch


def fetch(
    client: RawClient,
    version: int,
    group: str,
    wanted: Mapping[Ref, Sequence[int]] | None,
    *,
    require_stable: bool = False,
) -> dict[tuple[Ref, int], Any]:
    """Returns the answer for each partition; for all that have an offset if `wanted` is None."""
    if version >= FIRST_FETCH_OF_GROUPS:
        topics = wanted and [OffsetFetchRequestTopics(**named(it), partition_indexes=[*wanted[it]]) for it in wanted]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
    else:
        request = OffsetFetchRequest(
            group, wanted and [OffsetFetchRequestTopic(str(it), [*wanted[it]]) for it in wanted]
        )
    request.require_stable = require_stable
    answer = client.call(request, version)
    if version >= FIRST_FETCH_OF_GROUPS:
        (answer,) = answer.groups
    assert answer.error_code == E.NONE
    return {(it.name or it.topic_id, each.partition_index): each for it in answer.topics for each in it.partitions}


def fetched(client: RawClient, group: str, topic: str, *, require_stable: bool = False) -> list[tuple[int, int]]:
    """Error and offset of both partitions."""
    found = fetch(client, 9, group, {topic: [0, 1]}, require_stable=require_stable)
    return [(it.error_code, it.committed_offset) for it in found.values()]


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched_as_they_were_committed(
    client: RawClient, new_group: Callable[[], str], topic: str, version: int
) -> None:
    group, unused = new_group(), new_group()
    commit(client, 9, group, {(topic, 0): 7})
    by_id = version >= FIRST_FETCH_WITH_IDS
    t, missing = refs(client, topic, by_id=by_id)
    nothing = (-1, "", -1)

    def offsets(group: str) -> dict[tuple[Ref, int], tuple[Any, ...]]:
        found = fetch(client, version, group, {t: [0, 1], missing: [0, 1]})
        return {
            key: (it.error_code, it.committed_offset, it.metadata, it.committed_leader_epoch)
            for key, it in found.items()
        }

    nowhere = {(missing, index): (E.UNKNOWN_TOPIC_ID if by_id else E.NONE, *nothing) for index in (0, 1)}
    there = (E.NONE, 7, "note", 3 if version >= 5 else -1)
    assert offsets(group) == {(t, 0): there, (t, 1): (E.NONE, *nothing), **nowhere}
    assert offsets(unused) == {(t, 0): (E.NONE, *nothing), (t, 1): (E.NONE, *nothing), **nowhere}
    if version >= 2:
        assert list(fetch(client, version, group, None)) == [(t, 0)]
        assert fetch(client, version, unused, None) == {}


@pytest.mark.parametrize("version", range(FIRST_FETCH_OF_GROUPS, 11))
def test_offsets_of_several_groups_are_fetched_together(
    client: RawClient, new_group: Callable[[], str], topic: str, version: int
) -> None:
    group_ids = [new_group() for _ in range(3)]
    commit(client, 9, group_ids[0], {(topic, 0): 7})
    commit(client, 9, group_ids[1], {(topic, 1): 8})
    t, _ = refs(client, topic, by_id=version >= FIRST_FETCH_WITH_IDS)
    wanted = OffsetFetchRequestTopics(**named(t), partition_indexes=[0, 1])
    answer = client.call(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(it, topics=[wanted]) for it in group_ids]), version
    )
    assert [(it.group_id, it.error_code) for it in answer.groups] == [(it, E.NONE) for it in group_ids]
    committed = [[it.committed_offset for it in group.topics[0].partitions] for group in answer.groups]
    assert committed == [[7, -1], [-1, 8], [-1, -1]]


# OffsetDelete


@pytest.mark.parametrize("group_is_named", [False, True])
@pytest.mark.parametrize("name", [None, "", NO_SUCH_TOPIC])
def test_offsets_are_deleted_of_a_group_that_exists(
    client: RawClient, group: str, group_is_named: bool, name: str | None
) -> None:
    wanted = [] if name is None else [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)])]
    answer = client.call(OffsetDeleteRequest(group if group_is_named else "", wanted), 0)
    assert (answer.error_code, answer.topics) == (E.GROUP_ID_NOT_FOUND if group_is_named else E.INVALID_GROUP_ID, [])


def test_offsets_are_deleted_of_partitions_that_exist(client: RawClient, group: str, topic: str) -> None:
    commit(client, 9, group, {(topic, 0): 7, (topic, 1): 8})
    wanted = {topic: (0, 9), NO_SUCH_TOPIC: (0,)}
    topics = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in indexes])
        for name, indexes in wanted.items()
    ]
    answer = client.call(OffsetDeleteRequest(group, topics), 0)
    assert answer.error_code == E.NONE
    assert errors(answer) == {
        (topic, 0): E.NONE,
        (topic, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        (NO_SUCH_TOPIC, 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert fetched(client, group, topic) == [NEVER, (E.NONE, 8)]


# TxnOffsetCommit


def add_group(producer: RawProducer, group: str) -> None:
    request = AddOffsetsToTxnRequest(producer.transactional_id, producer.producer_id, producer.epoch, group)
    assert producer.client.call(request, 3).error_code == E.NONE


def txn_commit(
    producer: RawProducer, version: int, group: str, offsets: Mapping[tuple[Ref, int], int], **more: Any
) -> dict[tuple[Ref, int], ErrorCode]:
    request = TxnOffsetCommitRequest(producer.transactional_id, group, producer.producer_id, producer.epoch)
    topics: dict[Ref, TxnOffsetCommitRequestTopic] = {}
    for (ref, index), offset in offsets.items():
        topic = topics.setdefault(ref, TxnOffsetCommitRequestTopic(**named(ref)))
        topic.partitions.append(TxnOffsetCommitRequestPartition(index, offset, 3 if version >= 2 else -1, "note"))
    request.topics = [*topics.values()]
    for name, value in more.items():
        setattr(request, name, value)
    return errors(producer.client.call(request, version))


@pytest.mark.parametrize("version", TXN_COMMIT_VERSIONS)
def test_offsets_of_a_transaction_are_seen_when_it_is_committed(
    client: RawClient, producer: RawProducer, group: str, topic: str, version: int
) -> None:
    by_id, adds = version >= FIRST_TXN_COMMIT_WITH_IDS, version >= FIRST_TXN_COMMIT_THAT_ADDS
    t, missing = refs(client, topic, by_id=by_id)
    unknown = E.UNKNOWN_TOPIC_ID if by_id else E.UNKNOWN_TOPIC_OR_PARTITION
    assert txn_commit(producer, version, group, {(missing, 0): 1}) == {(missing, 0): unknown}
    assert producer.described().transaction_state == "Empty", "a transaction is not begun for nothing"
    if not adds:
        refused = E.TRANSACTION_ABORTABLE if version >= 4 else E.INVALID_TXN_STATE
        assert txn_commit(producer, version, group, {(t, 0): 2}) == {(t, 0): refused}
        add_group(producer, group)
    sent = {(missing, 0): 1, (t, 0): 2, (t, 5): 3, (t, -1): 4}
    assert txn_commit(producer, version, group, sent) == {
        (missing, 0): unknown,
        (t, 0): E.NONE,
        (t, 5): E.UNKNOWN_TOPIC_OR_PARTITION,
        (t, -1): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert fetched(client, group, topic) == [NEVER, NEVER]
    assert fetched(client, group, topic, require_stable=True) == [(E.UNSTABLE_OFFSET_COMMIT, -1), NEVER]
    assert producer.end(committed=True, version=NEWEST_END if adds else CLASSIC_END) == E.NONE
    assert producer.described().transaction_state == "CompleteCommit"
    found = fetch(client, 9, group, {topic: [0]}, require_stable=True)[topic, 0]
    assert (found.error_code, found.committed_offset, found.metadata) == (E.NONE, 2, "note")
    assert found.committed_leader_epoch == (3 if version >= 2 else -1)


@pytest.mark.parametrize("version", TXN_COMMIT_VERSIONS)
def test_a_transaction_takes_offsets_of_its_producer_for_a_group_with_a_name(
    client: RawClient, producer: RawProducer, group: str, topic: str, version: int
) -> None:
    t, _ = refs(client, topic, by_id=version >= FIRST_TXN_COMMIT_WITH_IDS)

    def refused(group: str, **more: Any) -> ErrorCode:
        return txn_commit(producer, version, group, {(t, 0): 5}, **more)[t, 0]

    if version < FIRST_TXN_COMMIT_THAT_ADDS:
        add_group(producer, group)
    assert refused("") == E.INVALID_GROUP_ID
    assert refused(group, transactional_id=f"{producer.transactional_id}?") == E.INVALID_PRODUCER_ID_MAPPING
    assert refused(group, producer_id=producer.producer_id + 100_000) == E.INVALID_PRODUCER_ID_MAPPING
    assert refused(group, producer_epoch=9) == E.INVALID_PRODUCER_EPOCH
    assert fetched(client, group, topic, require_stable=True) == [NEVER, NEVER]
    assert refused(group) == E.NONE


@pytest.mark.parametrize("version", range(7, 11))
def test_a_fetch_of_stable_offsets_returns_an_error_for_each_that_is_not(
    client: RawClient, producer: RawProducer, group: str, topic: str, version: int
) -> None:
    commit(client, 9, group, {(topic, 0): 1, (topic, 1): 2})
    assert txn_commit(producer, 5, group, {(topic, 0): 5}) == {(topic, 0): E.NONE}
    t, _ = refs(client, topic, by_id=version >= FIRST_FETCH_WITH_IDS)
    for wanted in ({t: [0, 1]}, None):
        for require_stable in (True, False):
            found = fetch(client, version, group, wanted, require_stable=require_stable)
            assert {index: (it.error_code, it.committed_offset) for (_, index), it in found.items()} == {
                0: (E.UNSTABLE_OFFSET_COMMIT, -1) if require_stable else (E.NONE, 1),
                1: (E.NONE, 2),
            }
    assert producer.end(committed=False, version=NEWEST_END) == E.NONE
