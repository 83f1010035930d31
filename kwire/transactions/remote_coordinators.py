"""Sends requests about partitions of this node to transaction coordinators elsewhere; drives `remote_partitions.py`.

An add that comes while the coordinator still completes the producer's last transaction is repeated for a short time, as
in Kafka's `ReplicaManager`, so that the producer need not retry.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

from kwire.config.server import ServerConfig
from kwire.peers.peers import Peers
from kwire.peers.sending import Sender, on_set
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future
from kwire.transactions.remote_partitions import PartitionsRequest, Question, RemotePartitions, TxnProducer
from kwire.transactions.transaction import TopicPartition

FIRST_VERSION_FOR_BROKERS = 4
"""The first version of AddPartitionsToTxn that brokers send."""


class RemoteCoordinators:
    """`node_of` returns the node that coordinates a transactional id; None if there is none, or if it is this one."""

    def __init__(self, peers: Peers, config: ServerConfig, clock: Clock, node_of: Callable[[str], int | None]) -> None:
        self._peers = peers
        self._clock = clock
        self._node_of = node_of
        self._patience_ms = config.add_partitions_to_txn_retry_backoff_max_ms
        self._pause_s = config.add_partitions_to_txn_retry_backoff_ms / 1000
        self._machine = RemotePartitions()
        self._sender = Sender(peers, self._machine.next_request, self._answered, at_least=FIRST_VERSION_FOR_BROKERS)
        self._futures: dict[Question, Future[KafkaError | None]] = {}

    def send(self, node_id: int, producer: TxnProducer, partition: TopicPartition) -> Future[KafkaError | None]:
        """The future gets None if the partition is part of the transaction, or else the error.

        Raises KafkaError(NETWORK_EXCEPTION) if too many questions wait for that node.
        """
        question = Question(producer, partition, self._clock.monotonic_ms() + self._patience_ms)
        self._machine.add(question, node_id)
        future: Future[KafkaError | None] = Future()
        self._futures[question] = future
        self._sender.send_soon(node_id)
        return future

    def _answered(self, sent: PartitionsRequest, response: AddPartitionsToTxnResponse | None) -> None:
        for question, error in self._machine.answered(sent, response):
            if error is not None and self._is_repeated(question, error):
                on_set(self._peers.pause(self._pause_s), partial(self._retry, question))
            else:
                self._futures.pop(question).set(error)

    def _is_repeated(self, question: Question, error: KafkaError) -> bool:
        return (
            error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            and question.producer.adds
            and self._clock.monotonic_ms() < question.until_ms
        )

    def _retry(self, question: Question, _: None) -> None:
        try:
            node_id = self._node_of(question.producer.transactional_id)
            if node_id is None:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            self._machine.add(question, node_id)
        except KafkaError as error:
            self._futures.pop(question).set(error)
        else:
            self._sender.send_soon(node_id)
