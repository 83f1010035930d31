"""Transactions in Kafka's admin protocol: lists and describes them, and aborts one in a partition (KIP-664).

Coordinators return transactional ids, leaders the transactions open in their partitions. The two need not agree,
which is what `hanging.py` is about.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire_protocol.messages.list_transactions import ListTransactionsRequest
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from kwire.admin.batches import batches
from kwire.client.cluster import Cluster, CoordinatorKind
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError, error_name, raise_worst, refused

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)

Partition = tuple[str, int]


@attrs.frozen
class Listed:
    """A transactional id in a coordinator's list."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@attrs.frozen
class Described:
    """The state of a transactional id, with its transaction and the partitions in which the markers will be written."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """None when there is no transaction at the moment."""
    partitions: tuple[Partition, ...]


@attrs.frozen
class OpenTransaction:
    """A transaction that is open in one partition, as the partition's leader reports it."""

    topic: str
    partition: int
    leader_id: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """-1 when no marker of that producer was ever written here."""
    start_offset: int
    last_timestamp_ms: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@attrs.define
class OpenTransactions:
    """`problems` has a sentence for each partition that could not be described."""

    found: list[OpenTransaction] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)


@attrs.frozen
class TransactionAdmin:
    """Requests about transactions. They raise ClientError if the cluster refuses them.

    A request to a coordinator that is loading, moving or not reached is retried until the cluster's timeout.
    """

    cluster: Cluster

    def list_transactions(self, *, states: Collection[str] = (), producer_ids: Collection[int] = ()) -> list[Listed]:
        """Returns transactional ids by coordinator and name: those of these states and producer ids, or all."""
        found: list[Listed] = []
        for some in batches(producer_ids) if producer_ids else [[]]:
            request = ListTransactionsRequest([*states], [*some])
            found += self.cluster.until_done(partial(self._list, request))
        return sorted(found, key=lambda it: (it.coordinator_id, it.transactional_id))

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, Described]:
        """Returns descriptions by transactional id, without the ids that their coordinator does not have."""
        return {name: found for name in sorted(set(transactional_ids)) if (found := self._describe(name)) is not None}

    def open_transactions(self, topic: str | None = None, partition: int | None = None) -> OpenTransactions:
        """Returns the open transactions in all partitions, those of one topic, or one partition."""
        transactions = OpenTransactions()
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for (name, index), leader_id in self._leaders(topic, partition).items():
            if leader_id < 0:
                transactions.problems.append(f"{name}-{index} has no leader")
            else:
                by_leader[leader_id].append((name, index))
        for leader_id, partitions in sorted(by_leader.items()):
            for some in batches(partitions):
                self._describe_producers(leader_id, some, transactions)
        transactions.found.sort(key=lambda it: (it.topic, it.partition, it.start_offset))
        return transactions

    def write_abort_marker(self, transaction: OpenTransaction) -> None:
        """Ends a transaction in one partition, regardless of its state at the coordinator."""
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(transaction.topic, [transaction.partition])],
            # The same as in Kafka's tool: 0 is no later than any epoch that a coordinator has.
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
        )
        response = self.cluster.call(WriteTxnMarkersRequest([marker]), node_id=transaction.leader_id)
        codes = [it.error_code for marker in response.markers for topic in marker.topics for it in topic.partitions]
        if codes != [ErrorCode.NONE]:
            reason = ", ".join(map(error_name, codes)) or "no answer for the partition"
            raise ClientError(
                f"broker {transaction.leader_id} did not abort the transaction of producer {transaction.producer_id} "
                f"in {transaction.name}: {reason}"
            )

    def _list(self, request: ListTransactionsRequest) -> list[Listed]:
        self.cluster.metadata([])
        found: list[Listed] = []
        problems: list[ClientError] = []
        for node_id, answer in self.cluster.call_each(dict.fromkeys(self.cluster.node_ids(), request)).items():
            if isinstance(answer, ClientError):
                problems.append(answer)
            elif answer.error_code:
                problems.append(refused(f"broker {node_id} does not list its transactions", answer.error_code))
            elif answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                problems.append(ClientError(f"broker {node_id} has no state {unknown}"))
            else:
                found += [
                    Listed(it.transactional_id, node_id, it.producer_id, it.transaction_state)
                    for it in answer.transaction_states
                ]
        raise_worst(problems)
        return found

    def _describe(self, transactional_id: str) -> Described | None:
        request = DescribeTransactionsRequest([transactional_id])

        def call(coordinator: BrokerConnection) -> Described | None:
            (it,) = coordinator.call(request).transaction_states
            if it.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            if it.error_code:
                raise refused(f"transactional id {quoted(transactional_id)} cannot be described", it.error_code)
            return Described(
                transactional_id=transactional_id,
                coordinator_id=self.cluster.coordinator(CoordinatorKind.TRANSACTION, transactional_id),
                producer_id=it.producer_id,
                producer_epoch=it.producer_epoch,
                state=it.transaction_state,
                timeout_ms=it.transaction_timeout_ms,
                start_ms=it.transaction_start_time_ms if it.transaction_start_time_ms >= 0 else None,
                partitions=tuple(sorted((topic.topic, index) for topic in it.topics for index in topic.partitions)),
            )

        return self.cluster.call_coordinator(CoordinatorKind.TRANSACTION, transactional_id, call)

    def _leaders(self, topic: str | None, partition: int | None) -> dict[Partition, int]:
        leaders: dict[Partition, int] = {}
        for it in self.cluster.metadata(None if topic is None else [topic]).topics:
            if it.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ClientError(f"there is no topic {quoted(topic)}")
            if it.error_code:
                raise ClientError(f"topic {quoted(it.name)} cannot be looked at: {error_name(it.error_code)}")
            leaders |= {(it.name or "", entry.partition_index): entry.leader_id for entry in it.partitions}
        if partition is None:
            return leaders
        if topic is None or (topic, partition) not in leaders:
            raise ClientError(f"topic {quoted(topic)} has no partition {partition}, but {len(leaders)} of them, from 0")
        return {(topic, partition): leaders[topic, partition]}

    def _describe_producers(
        self, leader_id: int, partitions: Iterable[Partition], transactions: OpenTransactions
    ) -> None:
        indexes: dict[str, list[int]] = defaultdict(list)
        for topic, index in partitions:
            indexes[topic].append(index)
        request = DescribeProducersRequest([TopicRequest(name, some) for name, some in indexes.items()])
        for topic in self.cluster.call(request, node_id=leader_id).topics:
            for it in topic.partitions:
                if it.error_code:
                    why = it.error_message or error_name(it.error_code)
                    transactions.problems.append(
                        f"broker {leader_id} does not describe {topic.name}-{it.partition_index}: {why}"
                    )
                transactions.found += [
                    OpenTransaction(
                        topic=topic.name,
                        partition=it.partition_index,
                        leader_id=leader_id,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        coordinator_epoch=producer.coordinator_epoch,
                        start_offset=producer.current_txn_start_offset,
                        last_timestamp_ms=producer.last_timestamp,
                    )
                    for producer in it.active_producers
                    if producer.current_txn_start_offset >= 0
                ]
