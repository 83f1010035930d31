"""A producer over brokers that fail in every way: records written once, in both protocols, and fencing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kwire_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kwire_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire_protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kwire_protocol.records import BatchHeader, Record, iter_records, read_header

from kwire.client.cluster import TopicPartition
from kwire.client.errors import ClientError, ConnectionFailed, Refused, UnknownTopic
from kwire.client.groups import CommittedOffset
from kwire.client.producer_state import Phase, WrongPhase
from kwire.client.producing import Producer, ProducerFenced, TransactionAborted, split_records
from testkit.fakes.brokers import FakeBrokers

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_LEADER, UNKNOWN_TOPIC, TOO_LARGE, CONCURRENT, LOADING = 6, 3, 10, 51, 14
INVALID_EPOCH, FENCED, ABORTABLE, NOT_ATTEMPTED, INVALID_TXN_STATE = 47, 90, 120, 55, 48
DUPLICATE = 46
LOST = ConnectionResetError(104, "Connection reset by peer")
Trouble = int | Exception


@attrs.define(eq=False)
class Written:
    """Leaders and coordinators that keep the batches they get. `troubles`: by request, what comes first instead."""

    brokers: FakeBrokers
    batches: dict[TopicPartition, list[bytes]] = attrs.field(factory=lambda: defaultdict(list))
    troubles: dict[type, list[Trouble]] = attrs.field(factory=lambda: defaultdict(list))
    loses_answers: bool = False
    """A trouble that is an exception comes after the request was carried out."""
    producer_id: int = 100
    epoch: int = -1

    def __attrs_post_init__(self) -> None:
        self.brokers.answers |= {
            ProduceRequest: self.produce,
            InitProducerIdRequest: self.init,
            AddPartitionsToTxnRequest: self.add_partitions,
            AddOffsetsToTxnRequest: lambda _, request: AddOffsetsToTxnResponse(0, self.trouble(request)),
            TxnOffsetCommitRequest: self.commit_offsets,
            EndTxnRequest: self.end,
        }

    def trouble(self, request: Any) -> int:
        waiting = self.troubles[type(request)]
        if not waiting:
            return 0
        trouble = waiting.pop(0)
        if isinstance(trouble, Exception):
            raise trouble
        return trouble

    def produce(self, node_id: int, request: Any) -> ProduceResponse:
        code = 0 if self.loses_answers else self.trouble(request)
        topics = []
        for topic in request.topic_data:
            partitions = []
            for it in topic.partition_data:
                offset = -1 if code else self.keep(TopicPartition(topic.name, it.index), bytes(it.records))
                partitions.append(PartitionProduceResponse(it.index, code, offset))
            topics.append(TopicProduceResponse(topic.name, partition_responses=partitions))
        if self.loses_answers:
            self.trouble(request)
        return ProduceResponse(topics)

    def keep(self, at: TopicPartition, batch: bytes) -> int:
        """Stores as a broker does: a duplicate batch is not written again."""
        kept = self.batches[at]
        if batch not in kept:
            kept.append(batch)
        return 10 * kept.index(batch)

    def init(self, node_id: int, request: Any) -> InitProducerIdResponse:
        code = self.trouble(request)
        if code:
            return InitProducerIdResponse(0, code)
        if request.transactional_id is None:
            self.producer_id += 1
        self.epoch += 1
        return InitProducerIdResponse(0, 0, self.producer_id, self.epoch if request.transactional_id else 0)

    def add_partitions(self, node_id: int, request: Any) -> AddPartitionsToTxnResponse:
        code = self.trouble(request)
        results = [
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    # As a broker does: the others are not attempted.
                    AddPartitionsToTxnPartitionResult(index, NOT_ATTEMPTED if code and index == 0 else code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def commit_offsets(self, node_id: int, request: Any) -> TxnOffsetCommitResponse:
        code = self.trouble(request)
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic.name,
                    partitions=[TxnOffsetCommitResponsePartition(it.partition_index, code) for it in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def end(self, node_id: int, request: Any) -> EndTxnResponse:
        code = self.trouble(request)
        if code:
            return EndTxnResponse(0, code)
        if self.brokers.versions[EndTxnRequest] >= 5:
            self.epoch += 1
        return EndTxnResponse(0, 0, self.producer_id, self.epoch)

    def headers(self, at: TopicPartition) -> list[BatchHeader]:
        return [read_header(batch) for batch in self.batches[at]]

    def values(self, at: TopicPartition) -> list[bytes | None]:
        return [it.value for batch in self.batches[at] for it in iter_records(batch)]


def records(*values: bytes) -> list[Record]:
    return [Record(value=value, timestamp=5) for value in values]


def scene(*, version: int = 2) -> tuple[FakeBrokers, Written]:
    brokers = FakeBrokers({"t": [1, 2]}, features={"transaction.version": version})
    return brokers, Written(brokers)


def transactional(brokers: FakeBrokers, timeout_s: float = 30.0) -> Producer:
    producer = Producer(brokers.cluster(timeout_s), transactional_id="id")
    producer.init()
    return producer


def sent(brokers: FakeBrokers) -> list[str]:
    """Returns the requests of transactions, in order, with the version of each request's last one."""
    return [
        type(request).__name__.removesuffix("Request")
        for _, request in brokers.received
        if isinstance(
            request,
            (
                InitProducerIdRequest,
                AddPartitionsToTxnRequest,
                AddOffsetsToTxnRequest,
                TxnOffsetCommitRequest,
                ProduceRequest,
                EndTxnRequest,
            ),
        )
    ]


# Without transactions


def test_batches_of_a_call_go_to_their_leaders_and_their_offsets_come_back() -> None:
    brokers, written = scene()
    producer = Producer(brokers.cluster())
    assert producer.produce({A: records(b"1", b"2"), B: records(b"3")}) == {A: 0, B: 0}
    assert producer.produce({A: records(b"4"), B: []}) == {A: 10}
    assert (written.values(A), written.values(B)) == ([b"1", b"2", b"4"], [b"3"])
    assert brokers.receivers_of(ProduceRequest) == [1, 2, 1]
    assert [(it.producer_id, it.producer_epoch, it.base_sequence) for it in written.headers(A)] == [
        (101, 0, 0),
        (101, 0, 2),
    ]
    assert not written.headers(A)[0].is_transactional
    (first, _, _) = brokers.requests(ProduceRequest)
    assert (first.acks, first.transactional_id) == (-1, None)


@pytest.mark.parametrize("trouble", [NOT_LEADER, UNKNOWN_TOPIC, 19, 2, 7, LOST])
def test_what_may_pass_is_sent_again_as_it_was(trouble: Trouble) -> None:
    brokers, written = scene()
    producer = Producer(brokers.cluster())
    written.troubles[ProduceRequest] = [trouble, trouble]
    assert producer.produce({A: records(b"1")}) == {A: 0}
    assert len(brokers.requests(ProduceRequest)) == 3
    assert len({bytes(it.topic_data[0].partition_data[0].records) for it in brokers.requests(ProduceRequest)}) == 1


def test_a_batch_whose_answer_was_lost_is_written_once() -> None:
    brokers, written = scene()
    written.loses_answers = True
    producer = Producer(brokers.cluster())
    written.troubles[ProduceRequest] = [LOST]
    assert producer.produce({A: records(b"1")}) == {A: 0}
    assert len(brokers.requests(ProduceRequest)) == 2
    assert len(written.batches[A]) == 1


def test_a_batch_that_the_leader_has_had_for_long_counts_as_written() -> None:
    brokers, written = scene()
    written.troubles[ProduceRequest] = [DUPLICATE]
    assert Producer(brokers.cluster()).produce({A: records(b"1")}) == {A: -1}


def test_only_what_was_not_written_is_sent_again() -> None:
    brokers, written = scene()
    producer = Producer(brokers.cluster())
    written.troubles[ProduceRequest] = [NOT_LEADER]  # from the first of two leaders
    assert producer.produce({A: records(b"1"), B: records(b"2")}) == {A: 0, B: 0}
    assert brokers.receivers_of(ProduceRequest) == [1, 2, 1]


def test_a_leader_that_moved_is_followed() -> None:
    brokers, written = scene()
    producer = Producer(brokers.cluster())
    producer.produce({A: records(b"1")})
    brokers.leaders["t"] = [2, 2]
    brokers.down = {1}
    assert producer.produce({A: records(b"2")}) == {A: 10}
    assert written.values(A) == [b"1", b"2"]


def test_what_fails_makes_another_producer_of_it() -> None:
    brokers, written = scene()
    producer = Producer(brokers.cluster())
    producer.produce({A: records(b"1")})
    written.troubles[ProduceRequest] = [TOO_LARGE]
    with pytest.raises(Refused, match="the producer cannot write to t-0: MESSAGE_TOO_LARGE"):
        producer.produce({A: records(b"2")})
    producer.produce({A: records(b"3")})
    assert [(it.producer_id, it.base_sequence) for it in written.headers(A)] == [(101, 0), (102, 0)]


def test_an_error_that_does_not_pass_in_time_is_reported() -> None:
    brokers, written = scene()
    producer = Producer(brokers.cluster(timeout_s=3))
    written.troubles[ProduceRequest] = [NOT_LEADER] * 1000
    with pytest.raises(Refused, match="cannot write to t-0: NOT_LEADER_OR_FOLLOWER"):
        producer.produce({A: records(b"1")})
    assert brokers.clock.now_s <= 3


def test_an_unknown_topic_is_reported_at_once() -> None:
    brokers, _ = scene()
    producer = Producer(brokers.cluster())
    with pytest.raises(UnknownTopic, match="there is no topic 'u'"):
        producer.produce({TopicPartition("u", 0): records(b"1")})
    assert brokers.clock.slept_s == []


def test_an_answer_that_does_not_contain_a_batch_is_no_answer() -> None:
    brokers, _ = scene()
    brokers.answers[ProduceRequest] = lambda _, request: ProduceResponse()
    with pytest.raises(Refused, match="the producer got no result for t-0"):
        Producer(brokers.cluster()).produce({A: records(b"1")})


def test_any_number_of_records_is_written_in_batches() -> None:
    brokers, written = scene()
    producer = Producer(brokers.cluster(), compression=4)
    values = [b"%d" % number * 10 for number in range(100)]
    assert producer.write(A, records(*values), batch_bytes=1000) == 0
    assert written.values(A) == values
    assert 3 < len(written.batches[A]) < 10
    assert {it.compression for it in written.headers(A)} == {4}
    assert producer.write(A, []) is None


@given(st.lists(st.binary(max_size=200)), st.integers(1, 500))
def test_records_are_split_in_order_and_within_the_size(values: list[bytes], batch_bytes: int) -> None:
    lists = list(split_records(records(*values), batch_bytes))
    assert [it.value for some in lists for it in some] == values
    assert all(lists)
    assert all(len(some) == 1 or sum(len(it.value or b"") for it in some) <= batch_bytes for some in lists)


# In transactions


def test_a_transaction_of_version_2_sends_nothing_but_its_writes() -> None:
    brokers, written = scene()
    producer = transactional(brokers)
    with producer.transaction():
        producer.produce({A: records(b"1"), B: records(b"2")})
        producer.add_offsets("g", {A: CommittedOffset(5, "m", 2)}, generation_id=3, member_id="me")
    with producer.transaction():
        producer.produce({A: records(b"3")})
    assert sent(brokers) == [
        *["InitProducerId", "Produce", "Produce", "TxnOffsetCommit", "EndTxn"],
        *["Produce", "EndTxn"],
    ]
    assert [brokers.versions[it] for it in (ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest)] == [12, 5, 5]
    # Each end gave a new epoch, in which sequences restart.
    assert [(it.producer_epoch, it.base_sequence) for it in written.headers(A)] == [(0, 0), (1, 0)]
    assert all(it.is_transactional for it in written.headers(A))
    (offsets,) = brokers.requests(TxnOffsetCommitRequest)
    assert (offsets.group_id, offsets.generation_id_or_member_epoch, offsets.member_id) == ("g", 3, "me")
    (it,) = offsets.topics[0].partitions
    assert (it.committed_offset, it.committed_leader_epoch, it.committed_metadata) == (5, 2, "m")


def test_a_transaction_before_version_2_registers_at_the_coordinator_first() -> None:
    brokers, written = scene(version=1)
    producer = transactional(brokers)
    for _ in range(2):
        with producer.transaction():
            producer.produce({A: records(b"1")})
            producer.produce({A: records(b"2")})
            producer.produce({A: records(b"3"), B: records(b"4")})
            for offset in (5, 6):
                producer.add_offsets("g", {A: offset})
    one = ["AddPartitionsToTxn", "Produce", "Produce", "AddPartitionsToTxn", "Produce", "Produce"]
    one += ["AddOffsetsToTxn", "TxnOffsetCommit", "TxnOffsetCommit", "EndTxn"]
    assert sent(brokers) == ["InitProducerId", *one, *one]
    kinds = [ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest, AddPartitionsToTxnRequest]
    assert [brokers.versions[it] for it in kinds] == [11, 4, 4, 3]
    assert [it.base_sequence for it in written.headers(A)] == list(range(6))
    assert {it.producer_epoch for it in written.headers(A)} == {0}


@pytest.mark.parametrize("version", [1, 2])
def test_an_empty_transaction_sends_no_request(version: int) -> None:
    brokers, _ = scene(version=version)
    producer = transactional(brokers)
    with producer.transaction():
        producer.add_offsets("g", {})
    producer.begin()
    producer.abort()
    assert sent(brokers) == ["InitProducerId"]


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_block_raises_aborts_its_transaction(version: int) -> None:
    brokers, _ = scene(version=version)
    producer = transactional(brokers)

    def write_and_stumble() -> None:
        with producer.transaction():
            producer.produce({A: records(b"1")})
            raise KeyError

    with pytest.raises(KeyError):
        write_and_stumble()
    assert [it.committed for it in brokers.requests(EndTxnRequest)] == [False]
    assert producer.phase is Phase.READY


def begin_and_write(producer: Producer) -> None:
    producer.begin()
    producer.produce({A: records(b"1"), B: records(b"1")})


def write_offsets_and_commit(producer: Producer) -> None:
    producer.begin()
    producer.add_offsets("g", {A: 1})
    producer.commit()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("trouble", [CONCURRENT, LOADING, 15, 16, LOST])
def test_requests_to_coordinators_that_are_busy_or_move_are_retried(version: int, trouble: Trouble) -> None:
    brokers, written = scene(version=version)
    for kind in (
        InitProducerIdRequest,
        AddPartitionsToTxnRequest,
        AddOffsetsToTxnRequest,
        TxnOffsetCommitRequest,
        EndTxnRequest,
    ):
        written.troubles[kind] = [trouble]
    producer = transactional(brokers)
    with producer.transaction():
        producer.produce({B: records(b"1")})
        producer.add_offsets("g", {A: 1})
    assert len(brokers.clock.slept_s) == (5 if version == 1 else 3)


@pytest.mark.parametrize("code", [INVALID_EPOCH, FENCED])
@pytest.mark.parametrize(
    ("kind", "version", "act"),
    [
        (ProduceRequest, 2, begin_and_write),
        (AddPartitionsToTxnRequest, 1, begin_and_write),
        (AddOffsetsToTxnRequest, 1, write_offsets_and_commit),
        (TxnOffsetCommitRequest, 2, write_offsets_and_commit),
        (EndTxnRequest, 2, write_offsets_and_commit),
    ],
)
def test_a_producer_that_is_fenced_is_at_its_end(
    kind: type, version: int, code: int, act: Callable[[Producer], None]
) -> None:
    brokers, written = scene(version=version)
    producer = transactional(brokers)
    written.troubles[kind] = [code]
    with pytest.raises(ProducerFenced, match="producer 'id' cannot"):
        act(producer)
    assert producer.phase is Phase.FENCED
    assert brokers.clock.slept_s == []
    for call in (producer.begin, producer.commit, producer.abort):
        with pytest.raises(WrongPhase, match="another producer has its transactional id"):
            call()
    producer.init()
    producer.begin()


def test_what_fails_in_a_transaction_leaves_it_to_be_aborted() -> None:
    brokers, written = scene()
    producer = transactional(brokers)
    producer.begin()
    written.troubles[ProduceRequest] = [TOO_LARGE]
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        producer.produce({A: records(b"1")})
    for call in (producer.commit, producer.begin, lambda: producer.add_offsets("g", {A: 1})):
        with pytest.raises(WrongPhase, match="its transaction failed, and can only be aborted"):
            call()
    producer.abort()
    assert [it.committed for it in brokers.requests(EndTxnRequest)] == [False]
    with producer.transaction():
        producer.produce({A: records(b"2")})
    assert written.values(A) == [b"2"]


def test_before_version_2_a_failed_transaction_is_aborted_by_a_new_epoch() -> None:
    brokers, written = scene(version=1)
    producer = transactional(brokers)
    producer.begin()
    written.troubles[ProduceRequest] = [TOO_LARGE]
    with pytest.raises(Refused):
        producer.produce({A: records(b"1")})
    producer.abort()
    assert brokers.requests(EndTxnRequest) == []
    again = brokers.requests(InitProducerIdRequest)[-1]
    assert (again.producer_id, again.producer_epoch) == (100, 0)
    with producer.transaction():
        producer.produce({A: records(b"2")})
    assert [(it.producer_epoch, it.base_sequence) for it in written.headers(A)] == [(1, 0)]


def test_the_reason_is_that_of_the_partition_that_has_one() -> None:
    brokers, written = scene(version=1)
    producer = transactional(brokers)
    written.troubles[AddPartitionsToTxnRequest] = [29]
    with pytest.raises(Refused, match="cannot add t-1 to its transaction: TOPIC_AUTHORIZATION_FAILED"):
        begin_and_write(producer)


def test_a_transaction_that_cannot_be_committed_is_aborted() -> None:
    brokers, written = scene()
    producer = transactional(brokers)
    begin_and_write(producer)
    written.troubles[EndTxnRequest] = [ABORTABLE]
    with pytest.raises(TransactionAborted, match="cannot commit: TRANSACTION_ABORTABLE"):
        producer.commit()
    producer.abort()
    assert producer.phase is Phase.READY


def test_a_commit_that_nobody_answers_may_only_be_repeated() -> None:
    brokers, _ = scene()
    producer = transactional(brokers, timeout_s=5)
    begin_and_write(producer)
    brokers.down = {1}
    with pytest.raises(ConnectionFailed):
        producer.commit()
    for call in (producer.abort, producer.begin):
        with pytest.raises(WrongPhase, match="its transaction may be committed already; commit it again"):
            call()
    brokers.down = set()
    producer.commit()
    assert producer.phase is Phase.READY


@pytest.mark.parametrize("version", [1, 2])
def test_an_abort_that_nobody_answers_may_be_repeated(version: int) -> None:
    brokers, _ = scene(version=version)
    producer = transactional(brokers, timeout_s=5)
    begin_and_write(producer)
    brokers.down = {1}
    with pytest.raises(ConnectionFailed):
        producer.abort()
    brokers.down = set()
    producer.abort()
    assert producer.phase is Phase.READY


def test_a_producer_reports_what_it_cannot_do() -> None:
    brokers, _ = scene()
    producer = Producer(brokers.cluster(), transactional_id="id")
    for call in (producer.begin, lambda: producer.produce({A: records(b"1")})):
        with pytest.raises(WrongPhase, match="it has no producer id yet"):
            call()
    producer.init()
    for call in (producer.commit, producer.abort, lambda: producer.produce({A: records(b"1")})):
        with pytest.raises(WrongPhase, match="it is in no transaction"):
            call()
    assert producer.phase is Phase.READY
    with pytest.raises(ClientError, match="without a transactional id"):
        Producer(brokers.cluster()).begin()
