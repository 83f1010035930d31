"""Offsets as Spark stores them in its log and in options, in exactly the format of the Kafka connector.

    {"orders": {"0": 23, "1": -1}, "refunds": {"0": -2}}       an offset, or a time in ms, for each partition
    {"orders": [0, 1], "refunds": [0]}                         partitions to read

In options -1 means the latest offset and -2 the earliest. A query's own log has only plain offsets: the offset after
the last record that was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from kwire.client.cluster import TopicPartition
from kwire.pipeline.errors import PipelineError

LATEST: Final = -1
EARLIEST: Final = -2

Positions = Mapping[TopicPartition, int]
"""An offset for each partition, or a time in ms since the epoch."""


def to_json_value(positions: Positions) -> dict[str, dict[str, int]]:
    """Returns offsets by topic and partition, both as text and sorted, so that equal positions give equal texts."""
    found: dict[str, dict[str, int]] = {}
    for at, position in sorted(positions.items()):
        found.setdefault(at.topic, {})[str(at.partition)] = position
    return found


def from_json_value(value: object) -> dict[TopicPartition, int]:
    """The reverse of `to_json_value`. Raises ValueError for any other value."""
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    found = {}
    for topic, by_partition in value.items():
        if not isinstance(by_partition, dict):
            raise ValueError(f"{topic!r} has no object of partitions")
        for partition, position in by_partition.items():
            if not (partition.isascii() and partition.isdigit()):
                raise ValueError(f"{partition!r} is no number of a partition")
            if not isinstance(position, int) or isinstance(position, bool):
                raise ValueError(f"{topic}-{partition} has no whole number")
            found[TopicPartition(topic, int(partition))] = position
    return found


def parse_positions(option: str, text: str) -> dict[TopicPartition, int]:
    """Parses an option's value for each partition. Raises PipelineError, which names the option."""
    try:
        return from_json_value(json.loads(text))
    except ValueError as error:
        wanted = 'give {"topic": {"0": 23, "1": -1}}, a number for each partition'
        raise PipelineError(f"option {option} cannot be read: {error}; {wanted}") from None


def parse_assignment(option: str, text: str) -> frozenset[TopicPartition]:
    """The partitions that an option names. Raises PipelineError, which names the option."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("it is no object")
        found = set()
        for topic, partitions in value.items():
            if not isinstance(partitions, list):
                raise ValueError(f"{topic!r} has no list of partitions")
            for partition in partitions:
                if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
                    raise ValueError(f"{partition!r} is no number of a partition")
                found.add(TopicPartition(topic, partition))
    except ValueError as error:
        raise PipelineError(f'option {option} cannot be read: {error}; give {{"topic": [0, 1]}}') from None
    if not found:
        raise PipelineError(f'option {option} names no partition; give {{"topic": [0, 1]}}')
    return frozenset(found)


def listed(partitions: Mapping[TopicPartition, object] | frozenset[TopicPartition] | set[TopicPartition]) -> str:
    """Returns the names of the first few partitions, for a message."""
    names = [str(at) for at in sorted(partitions)]
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


_NAMED = 10
