"""Requests for the start of a fuzz: whole ones of every served API and version, made of meaningful values.

The schemas have the fields. Their values are chosen by name, half of the time values that a broker would accept (an
existing topic, partition 0, a short time to wait) and else values that break brokers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import attrs
from codegen.schema import Field
from kwire_protocol.records import Record, build_batch

from kwire.handlers.apis import APIS
from testkit.messages.catalogue import ENTRIES, Entry

NOW_MS = 1_700_000_000_000
NASTY_NAMES = (
    "",
    ".",
    "..",
    "a/b",
    "../escaped",
    "../../escaped",
    "/absolute",
    "a\\b",
    "a\0b",
    "line\nbreak",
    "esc\x1b[31m",
    "é😀",
    "x" * 249,
    "x" * 250,
    "x" * 5000,
    "__consumer_offsets",
    "__cluster_metadata",
    "con",
    "%s%n",
    "fuzz-0-0",
)
CONFIGS = ("retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes", "compression.type", "no.such.config")
CONFIG_VALUES = ("1000", "compact", "delete", "compact,delete", "-1", "0", "gzip", "9" * 30, "", "nan", None)
TEXTS = ("", "consumer", "range", "roundrobin", "a", "é😀", "x" * 300, "\0", "127.0.0.1")
# By the field's name: what is usual. Waiting is short, since a fuzz has no time.
USUAL_NUMBERS: dict[str, Sequence[int]] = {
    "acks": (-1, 0, 1, 1),
    "timeout_ms": (0, 10, 1000),
    "max_wait_ms": (0, 1, 500),
    "min_bytes": (0, 1, 1 << 20),
    "max_bytes": (0, 1, 1 << 20),
    "partition_max_bytes": (0, 1, 1 << 20),
    "session_timeout_ms": (6000, 10000, 45000),
    "rebalance_timeout_ms": (1, 10, 100),
    "num_partitions": (1, 2, 3, -1),
    "count": (1, 2, 3),
    "replication_factor": (1, -1),
    "replica_id": (-1,),
    "session_id": (0,),
    "session_epoch": (0, -1, 1),
    "resource_type": (2,),
    "config_operation": (0, 1, 2, 3),
    "generation_id": (-1, 0, 1),
    "generation_id_or_member_epoch": (-1, 0, 1),
    "timestamp": (-1, -2, -3, 0, 1_700_000_000_000),
    "fetch_offset": (0, 0, 1, 5),
    "current_leader_epoch": (-1, 0),
    "leader_epoch": (-1, 0),
    "transaction_timeout_ms": (1000, 60_000),
    "producer_id": (-1, 0, 1),
    "producer_epoch": (-1, 0, 1),
    "response_partition_limit": (1, 2000),
}
INDEX_NAMES = {"index", "partition", "partition_index", "partition_indexes", "partitions"}


@attrs.frozen
class TopicNames:
    """The names for requests: topics, some of which exist, and the ids of those that do."""

    topics: tuple[str, ...]
    topic_ids: tuple[bytes, ...]


def served_entries() -> list[Entry]:
    """The requests of every API that kwire serves."""
    return [entry for entry in ENTRIES if entry.message.kind == "request" and entry.message.api_key in APIS]


def some_batch(chance: random.Random) -> bytes:
    records = [
        Record(0, NOW_MS + i, chance.choice([None, b"key"]), bytes(chance.choice([0, 1, 90])), (("h", None),))
        for i in range(chance.choice([1, 1, 3, 20]))
    ]
    producer_id = chance.choice([-1, -1, 0, 1])
    return build_batch(
        records,
        compression=chance.randrange(5),
        producer_id=producer_id,
        producer_epoch=min(producer_id, 0),
        base_sequence=-1 if producer_id < 0 else chance.choice([0, 1, 20]),
        transactional=chance.random() < 0.05,
        control=chance.random() < 0.05,
    )


class RequestMaker:
    """Makes whole requests; the same seed makes the same ones."""

    def __init__(self, seed: int, names: TopicNames) -> None:
        self._chance = random.Random(seed)
        self._names = names

    def request(self, entry: Entry, version: int) -> Any:
        return self._struct(entry, entry.name, version)

    def _struct(self, entry: Entry, struct: str, version: int) -> Any:
        chosen: dict[str, Any] = {}
        for field in entry.fields(struct):
            if version in field.versions and (field.tag is None or self._chance.random() < 0.3):
                chosen[field.attribute] = self._field(entry, field, version)
        return entry.classes[struct](**chosen)

    def _field(self, entry: Entry, field: Field, version: int) -> Any:
        chance = self._chance
        if version in field.nullable and chance.random() < 0.15:
            return None
        if field.is_array:
            return [self._element(entry, field, version) for _ in range(chance.choice([0, 1, 1, 1, 1, 2, 3]))]
        return self._element(entry, field, version)

    def _element(self, entry: Entry, field: Field, version: int) -> Any:
        chance = self._chance
        if field.is_struct:
            return self._struct(entry, field.element, version)
        match field.element:
            case "bool":
                return chance.random() < 0.5
            case "float64":
                return chance.choice([0.0, -1.0, 1e300])
            case "uuid":
                return chance.choice((*self._names.topic_ids, bytes(16), chance.randbytes(16)))
            case "records":
                return some_batch(chance) if chance.random() < 0.9 else chance.randbytes(chance.randrange(100))
            case "bytes":
                return chance.randbytes(chance.choice([0, 5, 100]))
            case "string":
                return self._text(entry, field)
            case integer:
                return self._number(field, integer)

    def _text(self, entry: Entry, field: Field) -> str | None:
        chance = self._chance
        unusual = chance.random() < 0.25
        if field.entity_type == "topicName" or field.attribute in ("topic", "topic_name", "resource_name"):
            return chance.choice(NASTY_NAMES if unusual else self._names.topics)
        if field.entity_type == "groupId":
            return chance.choice(NASTY_NAMES) if unusual else f"group-{chance.randrange(1000)}"
        if field.attribute == "member_id":
            return "" if not unusual else chance.choice(TEXTS)
        if "config" in field.attribute or (field.attribute == "name" and "Config" in entry.name):
            return chance.choice(CONFIGS)
        if field.attribute == "value":
            return chance.choice(CONFIG_VALUES) or ("" if not field.nullable else None)
        return chance.choice(TEXTS)

    def _number(self, field: Field, integer: str) -> int:
        chance = self._chance
        signed = integer.startswith("int")
        bits = int(integer.removeprefix("u").removeprefix("int"))
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if chance.random() < 0.85:
            if field.attribute in USUAL_NUMBERS:
                return max(low, min(high, chance.choice(USUAL_NUMBERS[field.attribute])))
            if field.attribute in INDEX_NAMES:
                return chance.choice([0, 0, 0, 1])
        return chance.choice([low, -1 if signed else 1, 0, 1, 2, high, high - 1, chance.randint(low, high)])
