"""A member of the group in a process of its own: reads, reports the read records, and then commits.

    python -m testkit.kills.group_kills.reader '{"bootstrap": "...", "group": "g", "topic": "t", "config": {}}'

Each line that it prints is a JSON list: ["read", partition, first offset, last offset]. A line is printed before the
commit that follows from it, so a commit without its line is a fault of the group.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from testkit.clients.confluent import consuming, is_of_a_downgraded_group

MOST_AT_ONCE, PATIENCE_S = 100, 0.2


def main() -> None:
    wanted = json.loads(sys.argv[1])
    while True:
        with consuming(wanted["bootstrap"], wanted["topic"], **wanted["config"]) as consumer:
            read(consumer, wanted["topic"])


def read(consumer: Consumer, topic: str) -> None:
    """Reads until librdkafka has ended the consumer. Only the end of a session in a downgraded group may do that."""
    while True:
        taken = consumer.consume(MOST_AT_ONCE, PATIENCE_S)
        if messages := [it for it in taken if it.error() is None]:
            commit(consumer, topic, report(messages))
        for error in filter(None, (it.error() for it in taken)):
            if is_of_a_downgraded_group(error):
                return
            assert error.code() != KafkaError._FATAL, error.str()


def report(messages: Iterable[Message]) -> dict[int, int]:
    """Prints what was read; returns the next offset of each partition."""
    following: dict[int, int] = {}
    spots = sorted((message.partition() or 0, message.offset() or 0) for message in messages)
    for partition, of_partition in groupby(spots, itemgetter(0)):
        offsets = [offset for _, offset in of_partition]
        print(json.dumps(["read", partition, offsets[0], offsets[-1]]), flush=True)  # noqa: T201 - this is what it is for
        following[partition] = offsets[-1] + 1
    return following


def commit(consumer: Consumer, topic: str, following: dict[int, int]) -> None:
    """Commits. If a commit is refused, the next owner of the partitions repeats it."""
    try:
        consumer.commit(
            offsets=[TopicPartition(topic, partition, offset) for partition, offset in following.items()],
            asynchronous=False,
        )
    except KafkaException:
        return


if __name__ == "__main__":
    main()
