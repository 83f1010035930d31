"""The first and last offsets of partitions, and the first record after a given time: ListOffsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from enum import IntEnum
from typing import Final

from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError, raise_worst, refused

LATEST: Final = -1
EARLIEST: Final = -2
_CONSUMER: Final = -1


class IsolationLevel(IntEnum):
    """The visibility of transactions to a reader (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def list_offsets(
    cluster: Cluster,
    topic: str,
    at: int,
    *,
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    partitions: Collection[int] | None = None,
) -> dict[int, int]:
    """Returns an offset for each partition that has one.

    at: EARLIEST for the first offset; LATEST for the next one to be written, with READ_COMMITTED the last stable
    offset; or a time in ms since the epoch, for the first record that is not older. A partition without such a record
    is left out.

    Looks up leaders that move, until the cluster's timeout. Raises UnknownTopic and other ClientErrors.
    """
    found: dict[int, int | None] = {}

    def attempt() -> None:
        wanted = cluster.topic(topic).leaders.keys() if partitions is None else partitions
        by_leader: dict[int, list[ListOffsetsPartition]] = defaultdict(list)
        for index in wanted:
            if index not in found:
                by_leader[cluster.leader(TopicPartition(topic, index))].append(
                    ListOffsetsPartition(index, timestamp=at)
                )
        answers = cluster.call_each(
            {
                leader: ListOffsetsRequest(
                    _CONSUMER, isolation_level, [ListOffsetsTopic(topic, partitions_of_leader)], _ms(cluster.timeout_s)
                )
                for leader, partitions_of_leader in by_leader.items()
            },
            at_least=2 if isolation_level else 1,
        )
        problems: list[ClientError] = []
        for answer in answers.values():
            if isinstance(answer, ClientError):
                problems.append(answer)
                continue
            for it in (it for topic_response in answer.topics for it in topic_response.partitions):
                if it.error_code:
                    what = f"the offsets of {TopicPartition(topic, it.partition_index)} cannot be listed"
                    problems.append(refused(what, it.error_code))
                else:
                    found[it.partition_index] = it.offset if it.offset >= 0 else None
        raise_worst(problems)

    cluster.until_done(attempt, lambda _: cluster.forget_topic(topic))
    return {index: offset for index, offset in sorted(found.items()) if offset is not None}


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
