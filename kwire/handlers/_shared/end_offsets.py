"""The end offsets of partitions, wherever in the cluster their leaders are.

Each other broker with leaders gets one ListOffsets request (Kafka's `NetworkPartitionMetadataClient`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from outcome import Value

from kwire.peers.peers import Answer
from kwire.runtime.futures import Future

if TYPE_CHECKING:
    from kwire.metadata.service import MetadataService
    from kwire.peers.peers import Peers
    from kwire.replicas.table import PartitionTable

TopicPartition: TypeAlias = tuple[str, int]
"""Topic and partition."""

TIMEOUT_S: Final = 30.0
LATEST: Final = -1
ANY_EPOCH: Final = -1
CLIENT: Final = -1
"""The replica id of a requester that is not a follower."""


async def end_offsets(
    metadata: MetadataService, partitions: PartitionTable, peers: Peers, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, int | ErrorCode]:
    """Returns the high watermark of each partition, or the error if it is unknown."""
    found: dict[TopicPartition, int | ErrorCode] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for name, index in wanted:
        leader_id = _leader_of(metadata, name, index)
        if leader_id is not None and leader_id >= 0 and leader_id != metadata.config.node_id:
            elsewhere.setdefault(leader_id, []).append((name, index))
            continue
        try:
            partition = partitions.find(name, index)
            partition.leader(ANY_EPOCH)
            found[name, index] = partition.high_watermark
        except KafkaError as error:
            found[name, index] = error.code
    # All requests are sent before the first response is awaited.
    sent: list[tuple[list[TopicPartition], Future[Answer]]] = [
        (theirs, peers.send(leader_id, _question(theirs), timeout_s=TIMEOUT_S))
        for leader_id, theirs in elsewhere.items()
    ]
    for theirs, future in sent:
        answer = await future
        found |= dict.fromkeys(theirs, ErrorCode.NETWORK_EXCEPTION)
        if isinstance(answer, Value):
            found |= _read(answer.value)
    return found


def _leader_of(metadata: MetadataService, name: str, index: int) -> int | None:
    topic = metadata.image.topics.get(name)
    return None if topic is None or not 0 <= index < len(topic.partitions) else topic.partitions[index].leader


def _question(wanted: Iterable[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in wanted:
        topic = topics.setdefault(name, ListOffsetsTopic(name))
        topic.partitions.append(ListOffsetsPartition(index, timestamp=LATEST))
    return ListOffsetsRequest(replica_id=CLIENT, topics=list(topics.values()))


def _read(response: Any) -> dict[TopicPartition, int | ErrorCode]:
    return {
        (topic.name, it.partition_index): ErrorCode(it.error_code) if it.error_code else it.offset
        for topic in response.topics
        for it in topic.partitions
    }
