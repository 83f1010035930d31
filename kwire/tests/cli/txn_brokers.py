"""A cluster for `kwire txn` that exists in dictionaries only: coordinators, leaders, and what each of them tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import describe_producers, describe_transactions, list_transactions, write_txn_markers
from kwire_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kwire_protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kwire_protocol.wire import ApiMessage

Partition = tuple[str, int]
ProducerState = describe_producers.ProducerState


@attrs.define
class Coordinated:
    """A transactional id at its coordinator."""

    producer_id: int
    state: str = "Ongoing"
    partitions: list[Partition] = attrs.field(factory=list)
    node_id: int = 1
    start_ms: int = 500
    described: bool = True
    """Whether it is still there when it is to be described."""


@attrs.define
class FakeBrokers:
    """`leaders` are partitions; `producers` what is open there. `asked` are the requests, with the broker of each."""

    leaders: dict[Partition, int] = attrs.field(factory=dict)
    producers: dict[Partition, list[ProducerState]] = attrs.field(factory=lambda: defaultdict(list))
    ids: dict[str, Coordinated] = attrs.field(factory=dict)
    nodes: list[int] = attrs.field(factory=lambda: [1, 2])
    producer_errors: dict[Partition, int] = attrs.field(factory=dict)
    passing_errors: list[int] = attrs.field(factory=list)
    """What coordinators answer before they answer well."""
    marker_error: int = 0
    unknown_states: list[str] = attrs.field(factory=list)
    pauses_s: list[float] = attrs.field(factory=list)
    asked: list[tuple[int | None, Any]] = attrs.field(factory=list)
    ends_meanwhile: set[Partition] = attrs.field(factory=set)
    """Partitions in which all is over when the coordinators have been asked."""

    def opens(
        self, topic: str, index: int, producer_id: int, start_offset: int, *, leader: int = 1, **more: int
    ) -> None:
        self.leaders[topic, index] = leader
        state = ProducerState(producer_id=producer_id, current_txn_start_offset=start_offset, **more)
        self.producers[topic, index].append(state)

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        names = dict.fromkeys(topic for topic, _ in self.leaders) if topics is None else topics
        response = MetadataResponse()
        for name in names:
            partitions = [
                MetadataResponsePartition(partition_index=index, leader_id=leader)
                for (topic, index), leader in self.leaders.items()
                if topic == name
            ]
            code = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response.topics.append(MetadataResponseTopic(error_code=code, name=name, partitions=partitions))
        return response

    def node_ids(self) -> list[int]:
        return self.nodes

    def pause(self, seconds: float) -> None:
        self.pauses_s.append(seconds)

    def call(self, request: ApiMessage, *, node_id: int | None = None, at_least: int = 0) -> Any:
        self.asked.append((node_id, request))
        match request:
            case FindCoordinatorRequest():
                return self._coordinator(request)
            case list_transactions.ListTransactionsRequest():
                return self._list(request, node_id)
            case describe_transactions.DescribeTransactionsRequest():
                return self._describe(request, node_id)
            case describe_producers.DescribeProducersRequest():
                return self._describe_producers(request, node_id)
            case write_txn_markers.WriteTxnMarkersRequest():
                return self._write(request, node_id)
        raise AssertionError(f"nobody answers {request!r}")

    def markers(self) -> list[tuple[int | None, write_txn_markers.WritableTxnMarker]]:
        return [
            (node_id, marker)
            for node_id, request in self.asked
            if isinstance(request, write_txn_markers.WriteTxnMarkersRequest)
            for marker in request.markers
        ]

    def requests(self, kind: type) -> list[tuple[int | None, Any]]:
        return [(node_id, request) for node_id, request in self.asked if isinstance(request, kind)]

    def _coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        assert request.key_type == 1
        (key,) = request.coordinator_keys
        code = self.passing_errors.pop(0) if self.passing_errors else 0
        node_id = self.ids[key].node_id if key in self.ids else 1
        return FindCoordinatorResponse(coordinators=[Coordinator(key, -1 if code else node_id, error_code=code)])

    def _list(
        self, request: list_transactions.ListTransactionsRequest, node_id: int | None
    ) -> list_transactions.ListTransactionsResponse:
        for partition in self.ends_meanwhile:
            self.producers[partition].clear()
        if self.passing_errors:
            return list_transactions.ListTransactionsResponse(error_code=self.passing_errors.pop(0))
        found = [
            list_transactions.TransactionState(name, it.producer_id, it.state)
            for name, it in self.ids.items()
            if it.node_id == node_id
            and (not request.state_filters or it.state in request.state_filters)
            and (not request.producer_id_filters or it.producer_id in request.producer_id_filters)
        ]
        return list_transactions.ListTransactionsResponse(
            unknown_state_filters=self.unknown_states, transaction_states=found
        )

    def _describe(
        self, request: describe_transactions.DescribeTransactionsRequest, node_id: int | None
    ) -> describe_transactions.DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        it = self.ids.get(name)
        if it is None or not it.described:
            answer = describe_transactions.TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
        else:
            assert it.node_id == node_id
            topics = [describe_transactions.TopicData(topic, [index]) for topic, index in it.partitions]
            answer = describe_transactions.TransactionState(
                0, name, it.state, 60_000, it.start_ms, it.producer_id, 3, topics
            )
        return describe_transactions.DescribeTransactionsResponse(transaction_states=[answer])

    def _describe_producers(
        self, request: describe_producers.DescribeProducersRequest, node_id: int | None
    ) -> describe_producers.DescribeProducersResponse:
        response = describe_producers.DescribeProducersResponse()
        for topic in request.topics:
            partitions = []
            for index in topic.partition_indexes:
                assert self.leaders[topic.name, index] == node_id
                code = self.producer_errors.get((topic.name, index), 0)
                open_here = [] if code else list(self.producers[topic.name, index])
                partitions.append(describe_producers.PartitionResponse(index, code, None, open_here))
            response.topics.append(describe_producers.TopicResponse(topic.name, partitions))
        return response

    def _write(
        self, request: write_txn_markers.WriteTxnMarkersRequest, node_id: int | None
    ) -> write_txn_markers.WriteTxnMarkersResponse:
        response = write_txn_markers.WriteTxnMarkersResponse()
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                assert all(self.leaders[topic.name, index] == node_id for index in topic.partition_indexes)
                results = [
                    write_txn_markers.WritableTxnMarkerPartitionResult(index, self.marker_error)
                    for index in topic.partition_indexes
                ]
                topics.append(write_txn_markers.WritableTxnMarkerTopicResult(topic.name, results))
            response.markers.append(write_txn_markers.WritableTxnMarkerResult(marker.producer_id, topics))
        return response
