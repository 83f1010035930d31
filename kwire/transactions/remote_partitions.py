"""Partitions that this node leads, for transactions that another node coordinates: its requests and their responses.

A pure machine. The first batch of a transaction in a partition is appended only when the coordinator has added the
partition to the transaction, or has confirmed that it is part of it. For each node at most one AddPartitionsToTxn is
under way, and questions added meanwhile go into the next one. Kafka's `AddPartitionsToTxnManager`.

A request has each transactional id once. A question that does not fit the entry of its id (another epoch, for example)
waits for the next request.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

from kwire.transactions.transaction import TopicPartition

MAX_WAITING: Final = 10_000
"""The maximum number of partitions that wait for one node. Further ones are refused."""
MAX_PARTITIONS: Final = 1_000
"""The maximum number of partitions in one request."""


class TxnProducer(NamedTuple):
    """A producer's transaction. `adds`: its partitions are to be added; else they are verified only."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


@attrs.define(eq=False)
class Question:
    """The question if a partition is part of the transaction. `until_ms`: the time on the monotonic clock until which
    an add is repeated while the producer's last transaction is being completed.
    """

    producer: TxnProducer
    partition: TopicPartition
    until_ms: int = 0


@attrs.frozen(eq=False)
class PartitionsRequest:
    """A request for a node, and its questions."""

    node_id: int
    request: AddPartitionsToTxnRequest
    questions: list[Question]


class RemotePartitions:
    """The questions about partitions to other nodes."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[Question, None]] = {}
        """The waiting questions by node, in their order."""
        self._busy: set[int] = set()
        """The nodes with a request under way."""

    def add(self, question: Question, node_id: int) -> None:
        """Adds a question. Raises KafkaError(NETWORK_EXCEPTION) if too many wait for that node."""
        waiting = self._waiting.setdefault(node_id, {})
        if len(waiting) >= MAX_WAITING:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"too many partitions wait for node {node_id}")
        waiting[question] = None

    def next_request(self, node_id: int) -> PartitionsRequest | None:
        """Returns the next request for that node; None while one is under way, or if no question waits.

        Call `answered` after each.
        """
        waiting = self._waiting.get(node_id)
        if node_id in self._busy or not waiting:
            return None
        producers: dict[str, TxnProducer] = {}
        taken = list(islice(_fitting(waiting, producers), MAX_PARTITIONS))
        for question in taken:
            del waiting[question]
        if not waiting:
            del self._waiting[node_id]
        self._busy.add(node_id)
        return PartitionsRequest(node_id, _request(taken), taken)

    def answered(
        self, sent: PartitionsRequest, response: AddPartitionsToTxnResponse | None
    ) -> list[tuple[Question, KafkaError | None]]:
        """Takes the outcome of a request. Returns each question with its error, None for success.

        Without a response it is NETWORK_EXCEPTION, after which the producer retries.
        """
        self._busy.discard(sent.node_id)
        if response is None:
            silence = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {sent.node_id} did not answer")
            return [(question, silence) for question in sent.questions]
        if response.error_code:
            # CLUSTER_AUTHORIZATION_FAILED concerns this broker, so it does not help a producer.
            denied = response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            error = _error(ErrorCode.INVALID_TXN_STATE if denied else response.error_code, sent.node_id)
            return [(question, error) for question in sent.questions]
        codes = {
            (transaction.transactional_id, topic.name, partition.partition_index): partition.partition_error_code
            for transaction in response.results_by_transaction
            for topic in transaction.topic_results
            for partition in topic.results_by_partition
        }
        return [
            (it, _error(codes.get((it.producer.transactional_id, *it.partition)), sent.node_id))
            for it in sent.questions
        ]


def _fitting(waiting: dict[Question, None], producers: dict[str, TxnProducer]) -> Iterator[Question]:
    for question in list(waiting):
        producer = question.producer
        if producers.setdefault(producer.transactional_id, producer) == producer:
            yield question


def _request(questions: list[Question]) -> AddPartitionsToTxnRequest:
    partitions: dict[TxnProducer, dict[str, set[int]]] = {}
    for question in questions:
        name, index = question.partition
        partitions.setdefault(question.producer, {}).setdefault(name, set()).add(index)
    return AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(
                producer.transactional_id,
                producer.producer_id,
                producer.producer_epoch,
                not producer.adds,
                [AddPartitionsToTxnTopic(name, sorted(indexes)) for name, indexes in topics.items()],
            )
            for producer, topics in partitions.items()
        ]
    )


def _error(code: int | None, node_id: int) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    if code is None or code == ErrorCode.OPERATION_NOT_ATTEMPTED:
        # Another partition of the request is still unknown to the coordinator.
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {node_id} did not look at the partition")
    try:
        return KafkaError(ErrorCode(code))
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"node {node_id} answered with error {code}")
