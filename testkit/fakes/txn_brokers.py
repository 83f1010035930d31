"""A fake cluster with transactions: coordinators, leaders, and their answers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kwire_protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kwire_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kwire_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kwire_protocol.messages.list_transactions import TransactionState as ListedState
from kwire_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from kwire.client.cluster import Cluster, CoordinatorKind
from testkit.fakes.brokers import HOST, Answer, FakeBrokers

Partition = tuple[str, int]


@attrs.define
class Coordinated:
    """A transactional id at its coordinator."""

    producer_id: int
    state: str = "Ongoing"
    partitions: list[Partition] = attrs.field(factory=list)
    node_id: int = 1
    start_ms: int = 500
    described: bool = True
    """True if it still exists when it is to be described."""


@attrs.define(eq=False)
class TxnBrokers:
    """A cluster. `leaders` are partitions; `producers` are the open transactions there; `ids` are those of the
    coordinators.
    """

    leaders: dict[Partition, int] = attrs.field(factory=dict)
    producers: dict[Partition, list[ProducerState]] = attrs.field(factory=lambda: defaultdict(list))
    ids: dict[str, Coordinated] = attrs.field(factory=dict)
    nodes: list[int] = attrs.field(factory=lambda: [1, 2])
    producer_errors: dict[Partition, int] = attrs.field(factory=dict)
    passing_errors: list[int] = attrs.field(factory=list)
    """The error codes of coordinators before they succeed."""
    marker_error: int = 0
    unknown_states: list[str] = attrs.field(factory=list)
    ends_meanwhile: set[Partition] = attrs.field(factory=set)
    """Partitions whose transactions have ended by the time when the coordinators have answered."""
    network: FakeBrokers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        answers: dict[type, Answer] = {
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: self._coordinator,
            ListTransactionsRequest: self._list,
            DescribeTransactionsRequest: self._describe,
            DescribeProducersRequest: self._describe_producers,
            WriteTxnMarkersRequest: self._write,
        }
        self.network = FakeBrokers(answers=answers, node_ids=self.nodes)

    def cluster(self) -> Cluster:
        return self.network.cluster()

    def opens(
        self, topic: str, index: int, producer_id: int, start_offset: int, *, leader: int = 1, **more: int
    ) -> None:
        self.leaders[topic, index] = leader
        state = ProducerState(producer_id=producer_id, current_txn_start_offset=start_offset, **more)
        self.producers[topic, index].append(state)

    def markers(self) -> list[tuple[int, WritableTxnMarker]]:
        return [
            (node_id, marker)
            for node_id, request in self.requests(WriteTxnMarkersRequest)
            for marker in request.markers
        ]

    def requests(self, kind: type) -> list[tuple[int, Any]]:
        return [(node_id, request) for node_id, request in self.network.received if isinstance(request, kind)]

    def _metadata(self, _: int, request: MetadataRequest) -> MetadataResponse:
        if request.topics is None:
            names = list(dict.fromkeys(topic for topic, _ in self.leaders))
        else:
            names = [it.name or "" for it in request.topics]
        topics = []
        for name in names:
            partitions = [
                MetadataResponsePartition(partition_index=index, leader_id=leader)
                for (topic, index), leader in self.leaders.items()
                if topic == name
            ]
            code = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(MetadataResponseTopic(code, name, bytes(16), partitions=partitions))
        brokers = [MetadataResponseBroker(node_id, HOST, node_id) for node_id in self.nodes]
        return MetadataResponse(0, brokers, "a cluster", 1, topics)

    def _coordinator(self, _: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        assert request.key_type == CoordinatorKind.TRANSACTION
        (key,) = request.coordinator_keys
        code = self.passing_errors.pop(0) if self.passing_errors else 0
        node_id = self.ids[key].node_id if key in self.ids else 1
        return FindCoordinatorResponse(coordinators=[Coordinator(key, -1 if code else node_id, error_code=code)])

    def _list(self, node_id: int, request: ListTransactionsRequest) -> ListTransactionsResponse:
        for partition in self.ends_meanwhile:
            self.producers[partition].clear()
        if self.passing_errors:
            return ListTransactionsResponse(error_code=self.passing_errors.pop(0))
        found = [
            ListedState(name, it.producer_id, it.state)
            for name, it in self.ids.items()
            if it.node_id == node_id
            and (not request.state_filters or it.state in request.state_filters)
            and (not request.producer_id_filters or it.producer_id in request.producer_id_filters)
        ]
        return ListTransactionsResponse(unknown_state_filters=self.unknown_states, transaction_states=found)

    def _describe(self, node_id: int, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        it = self.ids.get(name)
        if it is None or not it.described:
            answer = TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
        else:
            assert it.node_id == node_id
            topics = [TopicData(topic, [index]) for topic, index in it.partitions]
            answer = TransactionState(0, name, it.state, 60_000, it.start_ms, it.producer_id, 3, topics)
        return DescribeTransactionsResponse(transaction_states=[answer])

    def _describe_producers(self, node_id: int, request: DescribeProducersRequest) -> DescribeProducersResponse:
        response = DescribeProducersResponse()
        for topic in request.topics:
            partitions = []
            for index in topic.partition_indexes:
                assert self.leaders[topic.name, index] == node_id
                code = self.producer_errors.get((topic.name, index), 0)
                open_here = [] if code else list(self.producers[topic.name, index])
                partitions.append(PartitionResponse(index, code, None, open_here))
            response.topics.append(TopicResponse(topic.name, partitions))
        return response

    def _write(self, node_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        response = WriteTxnMarkersResponse()
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                assert all(self.leaders[topic.name, index] == node_id for index in topic.partition_indexes)
                results = [
                    WritableTxnMarkerPartitionResult(index, self.marker_error) for index in topic.partition_indexes
                ]
                topics.append(WritableTxnMarkerTopicResult(topic.name, results))
            response.markers.append(WritableTxnMarkerResult(marker.producer_id, topics))
        return response
