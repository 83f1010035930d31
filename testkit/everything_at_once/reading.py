"""Reading a partition from its start to its end, over restarts of the broker."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition

from testkit.basics.waiting import Deadline
from testkit.clients.confluent import consuming, fetch_metadata
from testkit.kills.group_ledger import Spot
from testkit.kills.sigkill.load import OF_A_BROKER_AWAY, RECONNECT

READ_WITHIN_S = 30.0
_NOT_YET = {
    *OF_A_BROKER_AWAY,
    # Of a topic that was made a moment ago, or has had another one of its name before it.
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def read(bootstrap: str, spot: Spot, end_offset: int, *, committed: bool = False) -> Iterator[Message]:
    """Returns every record, until a check of the log's end, at `end_offset` or above, finds no more."""
    deadline = Deadline(READ_WITHIN_S)
    settings = {
        "check.crcs": True,
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "fetch.error.backoff.ms": 20,
        "fetch.wait.max.ms": 20,
        **RECONNECT,
    }
    with consuming(bootstrap, **settings) as consumer:
        fetch_metadata(consumer, spot[0])
        consumer.assign([TopicPartition(*spot, OFFSET_BEGINNING)])
        position = -1
        while deadline.not_over(f"{spot} up to {end_offset}; it stands at {position}"):
            for message in consumer.consume(num_messages=1000, timeout=0.05):
                error = message.error()
                if error is None:
                    position = int(message.offset() or 0) + 1
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    if int(message.offset() or 0) >= end_offset:
                        return
                else:
                    assert error.code() in _NOT_YET, f"reading {spot} at {position}: {error}"
