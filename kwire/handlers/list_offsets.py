"""ListOffsets: v1-11.

* v2: isolation_level
* v4: current_leader_epoch, leader_epoch (KIP-320)
* v5: OFFSET_NOT_AVAILABLE (KIP-207)
* v6: flexible
* v7: -3, the record with the largest timestamp (KIP-734)
* v8: -4, the earliest local offset (KIP-405)
* v9: -5, the latest tiered offset (KIP-1005)
* v10: timeout_ms, for lookups in remote storage (KIP-1075)
* v11: -6, the earliest offset that is not uploaded yet (KIP-1023)

Spark requests -2 and -1 after every poll, so these two only read integers.

Replica id -1 is a consumer, and -2 the debugging consumer of Kafka's tools: it may query any replica, and gets offsets
up to the replica's log end. Followers have their own ids.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from kwire.replicas.partition import CONSUMER, Partition, read_bound
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
FIRST_VERSION_WITH_EPOCH = 4
FIRST_VERSION_WITH_NOT_AVAILABLE = 5
NO_EPOCH = -1
NO_OFFSET = -1
DEBUGGING_CONSUMER = -2


def handle(authorization: Authorization, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    version = context.api_version
    find = authorization.finder(context, Operation.DESCRIBE)
    is_consumer = request.replica_id == CONSUMER
    role_of = Partition.readable if request.replica_id == DEBUGGING_CONSUMER else Partition.leader
    end_of = read_bound(request.replica_id, request.isolation_level)
    duplicates = _duplicates(request)
    response = ListOffsetsResponse()
    for topic in request.topics:
        name = topic.name
        answers = []
        for wanted in topic.partitions:
            index, timestamp = wanted.partition_index, wanted.timestamp
            try:
                if duplicates and (name, index) in duplicates:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partition = find(name, index)
                role = role_of(partition, wanted.current_leader_epoch)
                if timestamp == LATEST:
                    if partition.high_watermark < role.epoch_start_offset and is_consumer:
                        raise _not_known_yet(version)
                    answer = ListOffsetsPartitionResponse(index, 0, -1, end_of(partition), role.leader_epoch)
                elif timestamp == EARLIEST:
                    answer = _earliest(partition, index)
                else:
                    answer = _search(partition, wanted, end_of(partition), version)
                    if (
                        answer.offset == NO_OFFSET
                        and partition.high_watermark < role.epoch_start_offset
                        and is_consumer
                        and timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
                    ):
                        raise _not_known_yet(version)
            except KafkaError as error:
                answer = ListOffsetsPartitionResponse(index, error.code)
            except OSError as error:
                answer = ListOffsetsPartitionResponse(index, partition.storage_error(error).code)
            if version < FIRST_VERSION_WITH_EPOCH:
                answer.leader_epoch = NO_EPOCH
            answers.append(answer)
        response.topics.append(ListOffsetsTopicResponse(name, answers))
    if duplicates:
        response.topics = _each_once(response.topics)
    return response


def _not_known_yet(version: int) -> KafkaError:
    """Returns the error of a new leader that does not have the high watermark yet: an end offset that clients have seen
    must not go back (KIP-207)."""
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE
        if version >= FIRST_VERSION_WITH_NOT_AVAILABLE
        else ErrorCode.LEADER_NOT_AVAILABLE
    )


def _duplicates(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    requested = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    if len(set(requested)) == len(requested):
        return set()
    return {key for key, count in Counter(requested).items() if count > 1}


def _each_once(topics: list[ListOffsetsTopicResponse]) -> list[ListOffsetsTopicResponse]:
    merged: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for topic in topics:
        merged.setdefault(topic.name, {}).update({answer.partition_index: answer for answer in topic.partitions})
    return [ListOffsetsTopicResponse(name, list(answers.values())) for name, answers in merged.items()]


def _earliest(partition: Partition, index: int) -> ListOffsetsPartitionResponse:
    start = partition.log_start_offset
    return ListOffsetsPartitionResponse(index, 0, -1, start, partition.log.leader_epochs.epoch_at(start))


def _search(partition: Partition, wanted: ListOffsetsPartition, end: int, version: int) -> ListOffsetsPartitionResponse:
    """Finds an offset below `end` by timestamp, or handles one of the rarer negative timestamps."""
    index, timestamp = wanted.partition_index, wanted.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or version < FIRST_VERSION_OF.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp == EARLIEST_LOCAL:
        return _earliest(partition, index)  # nothing is in remote storage
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        # Nothing is tiered, so there is no such offset; Kafka answers the same without remote storage.
        return ListOffsetsPartitionResponse(index)
    found = partition.find_newest(end) if timestamp == MAX_TIMESTAMP else partition.find_time(timestamp, end)
    if found is None:
        return ListOffsetsPartitionResponse(index)
    return ListOffsetsPartitionResponse(index, 0, found.timestamp, found.offset, found.leader_epoch)
