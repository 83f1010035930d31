"""Markers for partitions that other nodes lead: combines them into requests, and interprets the responses.

A pure machine. For each node at most one request is under way. Markers added meanwhile go into the next one, so the
markers of many transactions share few requests. Each marker is sent once: if that fails, the transaction machine
requests it again, with its growing pauses, when the partition may have another leader. Kafka's
`TransactionMarkerChannelManager` and `TransactionMarkerRequestCompletionHandler`.

A marker that is needed from another node now, or no longer, is removed here, and so a response about it has no effect.
A late marker could end the producer's next transaction, which has the same epoch below transaction version 2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from kwire.client.errors import error_name
from kwire.transactions.effects import WriteMarkers
from kwire.transactions.transaction import TopicPartition

log = logging.getLogger(__name__)

MAX_PARTITIONS: Final = 10_000
"""The maximum number of partitions in one request."""

NEEDLESS: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""With these errors no marker is needed: another coordinator or epoch has ended the transaction."""

_RETRIED_SILENTLY: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

IsCurrent = Callable[[int, int], bool]
"""Returns True if this node still coordinates a partition of `__transaction_state` (its index) in that epoch."""


@attrs.define(eq=False)
class _Wanted:
    """A marker that a partition of another node lacks. `index` is the coordinator's partition."""

    index: int
    marker: WriteMarkers
    partition: TopicPartition
    node_id: int

    @property
    def key(self) -> tuple[str, TopicPartition]:
        return self.marker.transactional_id, self.partition

    def is_as(self, index: int, marker: WriteMarkers, node_id: int) -> bool:
        mine = self.marker
        return (self.index, self.node_id) == (index, node_id) and (
            (mine.producer_id, mine.producer_epoch, mine.coordinator_epoch, mine.committed)
            == (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.committed)
        )


@attrs.frozen(eq=False)
class MarkersRequest:
    """A request for a node, and the markers that it carries."""

    node_id: int
    request: WriteTxnMarkersRequest
    _carried: list[_Wanted]


@attrs.frozen
class Written:
    """These partitions have the marker, or do not need it: the input of `TransactionShard.markers_written`."""

    index: int
    marker: WriteMarkers
    partitions: list[TopicPartition]


class RemoteMarkers:
    """The markers that other nodes have to write."""

    def __init__(self, is_current: IsCurrent) -> None:
        self._is_current = is_current
        self._wanted: dict[tuple[str, TopicPartition], _Wanted] = {}
        """All markers by transactional id and partition: those that wait, and those that are under way."""
        self._waiting: dict[int, dict[tuple[str, TopicPartition], _Wanted]] = {}
        """The markers that wait for the next request, by node."""
        self._busy: set[int] = set()
        """The nodes with a request under way."""

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def want(self, index: int, marker: WriteMarkers, partition: TopicPartition, node_id: int) -> None:
        """Adds a marker that a partition led by `node_id` lacks. Adding it again changes nothing."""
        key = (marker.transactional_id, partition)
        known = self._wanted.get(key)
        if known is not None:
            if known.is_as(index, marker, node_id):
                return
            self.forget(*key)
        wanted = self._wanted[key] = _Wanted(index, marker, partition, node_id)
        self._waiting.setdefault(node_id, {})[key] = wanted

    def forget(self, transactional_id: str, partition: TopicPartition) -> None:
        """Removes a marker that no other node has to write any more. If it is under way, the response has no effect."""
        key = (transactional_id, partition)
        known = self._wanted.pop(key, None)
        if known is not None:
            self._no_longer_waits(known)

    def next_request(self, node_id: int) -> MarkersRequest | None:
        """Returns the next request for that node; None while one is under way, or if no marker waits.

        Call `answered` after each.
        """
        waiting = self._waiting.get(node_id)
        if node_id in self._busy or not waiting:
            return None
        carried: list[_Wanted] = []
        for wanted in list(waiting.values()):
            if len(carried) == MAX_PARTITIONS:
                break
            self._no_longer_waits(wanted)
            if self._is_current(wanted.index, wanted.marker.coordinator_epoch):
                carried.append(wanted)
            else:
                del self._wanted[wanted.key]
        if not carried:
            return None
        self._busy.add(node_id)
        return MarkersRequest(node_id, WriteTxnMarkersRequest(_markers(carried)), carried)

    def answered(self, sent: MarkersRequest, response: WriteTxnMarkersResponse | None) -> list[Written]:
        """Takes the outcome of a request. Without a response, or with a transient error, the markers are removed here
        until the transaction machine requests them again.
        """
        self._busy.discard(sent.node_id)
        errors = {} if response is None else _errors(response)
        written: dict[int, Written] = {}
        for wanted in sent._carried:
            if self._wanted.get(wanted.key) is not wanted:
                continue
            del self._wanted[wanted.key]
            if not self._is_current(wanted.index, wanted.marker.coordinator_epoch):
                continue
            error = errors.get((wanted.marker.producer_id, *wanted.partition))
            if response is not None and _is_done(error, wanted):
                done = written.setdefault(id(wanted.marker), Written(wanted.index, wanted.marker, []))
                done.partitions.append(wanted.partition)
        return list(written.values())

    def _no_longer_waits(self, wanted: _Wanted) -> None:
        waiting = self._waiting.get(wanted.node_id, {})
        if waiting.get(wanted.key) is wanted:
            del waiting[wanted.key]
            if not waiting:
                del self._waiting[wanted.node_id]


def _is_done(error: int | None, wanted: _Wanted) -> bool:
    if error == ErrorCode.NONE:
        return True
    name = "no answer about it" if error is None else error_name(error)
    if error in NEEDLESS:
        log.info("no marker in %s-%d at node %d: %s", *wanted.partition, wanted.node_id, name)
        return True
    log.log(
        logging.DEBUG if error in _RETRIED_SILENTLY else logging.WARNING,
        "node %d did not write a marker to %s-%d, which is tried again: %s",
        wanted.node_id,
        *wanted.partition,
        name,
    )
    return False


def _markers(carried: list[_Wanted]) -> list[WritableTxnMarker]:
    """Returns one WritableTxnMarker for each transaction."""
    markers: dict[int, WritableTxnMarker] = {}
    topics: dict[tuple[int, str], WritableTxnMarkerTopic] = {}
    for wanted in carried:
        marker, (name, index) = wanted.marker, wanted.partition
        writable = markers.get(id(marker))
        if writable is None:
            writable = markers[id(marker)] = WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        topic = topics.get((id(marker), name))
        if topic is None:
            topic = topics[id(marker), name] = WritableTxnMarkerTopic(name)
            writable.topics.append(topic)
        topic.partition_indexes.append(index)
    return list(markers.values())


def _errors(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], int]:
    """Error codes by producer id, topic and partition."""
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
