"""Share groups, and confluent-kafka's consumers of them (KIP-932), as the tests use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from testkit.basics.waiting import Deadline
from testkit.clients.confluent import quiet
from testkit.raw import groups
from testkit.raw.share_states import share_partition

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
IMPLICIT, EXPLICIT = "implicit", "explicit"

SHORTEST_LOCK_MS = 1_000
"""Neither Apache Kafka nor kwire allows for less."""

Delivery: TypeAlias = tuple[int, int]
"""An offset, and how often the record was delivered."""

_POLL_S = 0.1


def make(bootstrap: str, group: str, **config: int | str) -> str:
    """Configures a share group to begin at the earliest offset, and with `config`, with underscores for dots.

    Returns when the broker reports the new values.
    """
    wanted: Mapping[str, int | str] = {"share.auto.offset.reset": "earliest", **_dotted(config)}
    for name, value in wanted.items():
        groups.configure(bootstrap, group, name, value)
    return group


def _dotted(config: Mapping[str, int | str]) -> dict[str, int | str]:
    return {name.replace("_", "."): value for name, value in config.items()}


@contextmanager
def sharing(bootstrap: str, group: str, *topics: str, mode: str = EXPLICIT, **config: Any) -> Iterator[ShareConsumer]:
    """A share consumer; subscribed if there are topics. It is closed at the end, unless it is already."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "share.acknowledgement.mode": mode,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 500,
        "reconnect.backoff.max.ms": 500,
        **config,
    }
    consumer = ShareConsumer(settings, logger=quiet)
    try:
        if topics:
            consumer.subscribe(list(topics))
        yield consumer
    finally:
        consumer.close()


def polled(consumer: ShareConsumer, patience_s: float = _POLL_S) -> list[Message]:
    """The records of one poll. Raises KafkaException."""
    messages = list(consumer.poll(patience_s))
    for message in messages:
        if (error := message.error()) is not None:
            raise KafkaException(error)
    return messages


def get(consumer: ShareConsumer, count: int, kind: AcknowledgeType | None = ACCEPT) -> list[Message]:
    """Polls until there are so many records, which are acknowledged, but not yet committed. Fails if there are more.

    kind: None for a consumer that acknowledges implicitly.
    """
    records: list[Message] = []
    deadline = Deadline()
    while len(records) < count and deadline.not_over(f"{count} records; got {deliveries(records)}"):
        messages = polled(consumer)
        acknowledge(consumer, messages, kind)
        records += messages
    assert len(records) == count, deliveries(records)
    return records


def acknowledge(consumer: ShareConsumer, messages: Iterable[Message], kind: AcknowledgeType | None = ACCEPT) -> None:
    if kind is not None:
        for message in messages:
            consumer.acknowledge(message, kind)


def commit(consumer: ShareConsumer) -> dict[int, int | None]:
    """Returns the error code of the refused acknowledgements, or None, by partition."""
    return {it.partition: _code(error) for it, error in consumer.commit_sync(20.0).items()}


def _code(error: KafkaException | None) -> int | None:
    return None if error is None else int(error.args[0].code())


def nothing_comes(consumer: ShareConsumer, for_s: float = 0.4) -> None:
    """Fails if the consumer gets something within this time. It can fetch a few times in it."""
    messages = polled(consumer, for_s)
    assert messages == [], deliveries(messages)


def deliveries(messages: Iterable[Message]) -> list[Delivery]:
    return [(message.offset() or 0, message.delivery_count() or 0) for message in messages]


def ended(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """Returns the number of a partition's records that the share coordinator counts as complete."""
    with share_partition(bootstrap, group, topic, partition) as state:
        _, _, _, start_offset, complete_from_there = state.summary()
    return start_offset + complete_from_there
