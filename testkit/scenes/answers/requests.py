"""Requests of every API and version, made from the message definitions.

`usual` has one element of everything, with existing names. `unusual` changes one field at a time: each value that a
broker may handle in its own way, as far as it follows from the field's type and name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
from codegen.schema import Field
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import NULL_UUID

from kwire.handlers.apis import APIS, Api
from testkit.messages.catalogue import ENTRIES, Entry

Path = tuple[str, ...]
"""The attributes that lead to a field."""

TOPIC, ELSEWHERE, UNKNOWN = "topic", "elsewhere", "unknown"
"""Topics: this broker leads the first, another broker the second, and the third does not exist."""
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""Groups. The first does not exist, and the others are of these kinds, with a member each."""
TRANSACTIONAL_ID = "transactional"
MEMBER: Final = "member"
OWNER: Final = "owner"
"""The owner of a delegation token."""

REQUESTS: Final = {it.message.api_key: it for it in ENTRIES if it.message.kind == "request"}
RESPONSES: Final = {it.message.api_key: it for it in ENTRIES if it.message.kind == "response"}
CASES: Final[list[tuple[Api, int]]] = [(api, version) for api in APIS.values() for version in api.versions]
"""Every API that is served, in every version."""


@attrs.frozen
class Named:
    """The existing things with random ids."""

    topic_id: bytes
    producer_id: int = 0
    token_hmac: bytes = b""


def usual(api: Api, version: int, named: Named) -> Any:
    entry = REQUESTS[api.key]
    return _Maker(entry, version, named, {}).struct(entry.name, ())


def unusual(api: Api, version: int, named: Named) -> Iterator[tuple[str, Any]]:
    """Each with what is unusual about it."""
    entry = REQUESTS[api.key]
    for path, field in _paths(entry, entry.name, version, ()):
        for value in _others(field, version, named):
            made = _Maker(entry, version, named, {path: value}).struct(entry.name, ())
            yield f"{'.'.join(path)}={value!r:.30}", made


def _paths(entry: Entry, struct: str, version: int, above: Path) -> Iterator[tuple[Path, Field]]:
    for field in entry.fields(struct):
        if version in field.versions:
            here = (*above, field.attribute)
            yield here, field
            if field.is_struct:
                yield from _paths(entry, field.element, version, here)


# Instead of a value: what is made of the usual one.
_TWICE: Final = "the usual one, twice"
_EMPTY: Final = "nothing"
_ONE: Final = "one"
_USUALLY_NOTHING: Final = (
    *("instance_id", "topic_partitions", "active_tasks", "standby_tasks", "warmup_tasks"),
    *("source_topic_regex", "repartition_sink_topics", "repartition_source_topics", "subscribed_topic_regex"),
    *("task_offsets", "task_end_offsets"),
)
"""The fields of heartbeats that stay empty: a member that joins has no tasks, and Kafka does not support all fields
yet.
"""


@attrs.frozen
class _Maker:
    entry: Entry
    version: int
    named: Named
    chosen: Mapping[Path, Any]
    """The values of the fields that are not usual."""

    def struct(self, name: str, above: Path) -> Any:
        fields = {}
        for field in self.entry.fields(name):
            if self.version in field.versions:
                fields[field.attribute] = self._value(field, (*above, field.attribute))
        return self.entry.classes[name](**fields)

    def _value(self, field: Field, path: Path) -> Any:
        how = self.chosen.get(path, _USUAL)
        if how is _USUAL and field.attribute in _USUALLY_NOTHING and self.entry.name.endswith("HeartbeatRequest"):
            how = None if self.version in field.nullable and not field.is_array else _EMPTY
        elif how is _ONE:
            how = _USUAL
        if field.is_struct and not field.is_array:
            return self.struct(field.element, path) if how is _USUAL else how
        if not field.is_array:
            return usual_values(field, self.named)[0] if how is _USUAL else how
        if how is None or how is _EMPTY:
            return None if how is None else []
        if field.is_struct:
            return [self.struct(field.element, path) for _ in range(2 if how is _TWICE else 1)]
        first = usual_values(field, self.named)[0]
        if how is _USUAL:
            return [first]
        return [first, first] if how is _TWICE else [how]


_USUAL: Final = object()


def _others(field: Field, version: int, named: Named) -> Iterator[Any]:
    if version in field.nullable or (field.is_struct and not field.is_array and field.tag is not None):
        yield None
    if field.is_array:
        yield from (_EMPTY, _ONE, _TWICE)
    if not field.is_struct:
        first, *others = usual_values(field, named)
        seen = [first]
        for value in (*others, *_values_of_type(field)):
            if value not in seen:
                seen.append(value)
                yield value


# What the fields have, the usual value first.

_GROUPS: Final = (CLASSIC, CONSUMER, SHARE, STREAMS)
_TOPICS: Final = (TOPIC, ELSEWHERE, UNKNOWN, "__consumer_offsets", "__cluster_metadata", "not valid")
_NUMBERS: Final[Mapping[str, Sequence[int]]] = {
    "acks": (1, -1, 0),
    "timeout_ms": (1_000,),
    "max_wait_ms": (0, 100),
    "max_bytes": (1 << 20,),
    "partition_max_bytes": (1 << 20,),
    "session_timeout_ms": (10_000,),
    "rebalance_timeout_ms": (10_000, -1),
    "transaction_timeout_ms": (60_000,),
    "num_partitions": (1,),
    "replication_factor": (1,),
    "count": (2,),
    "broker_id": (1,),
    "broker_ids": (1,),
    "brokers": (1,),
    "replicas": (1,),
    "replica_id": (-1,),
    "session_id": (0,),
    "session_epoch": (-1, 0),
    "current_leader_epoch": (-1, 0),
    "last_fetched_epoch": (-1, 0, 7),
    "timestamp": (-1,),
    "resource_type": (2, 4, 8, 16, 32),
    "max_lifetime_ms": (-1,),
    "max_records": (1,),
    "endpoint_type": (1, 2),
    "key_type": (0, 1, 2),
    "generation_id": (1,),
    "generation_id_or_member_epoch": (-1, 1),
    "member_epoch": (0, 1, -1),
    "share_session_epoch": (0, 1, -1),
    "producer_epoch": (0,),
    "pattern_type": (3, 1),
    "pattern_type_filter": (3, 1),
    "resource_type_filter": (1, 2),
    "operation": (3, 1, 2),
    "permission_type": (3, 1),
    "upgrade_type": (1, 2, 3),
    "response_partition_limit": (2_000,),
    "iterations": (4_096,),
    "mechanism": (1,),
    "max_version_level": (2,),
}
_TEXTS: Final[Mapping[str, Sequence[str]]] = {
    "topic": _TOPICS,
    "topic_name": _TOPICS,
    "resource_name": (TOPIC, "1", CLASSIC),
    "resource_name_filter": (TOPIC,),
    "principal": ("User:somebody",),
    "principal_type": ("User",),
    "owner_principal_type": ("User",),
    "principal_name": (OWNER,),
    "owner_principal_name": (OWNER,),
    "host": ("*",),
    "key": (CLASSIC, TRANSACTIONAL_ID),
    "coordinator_keys": (CLASSIC, TRANSACTIONAL_ID),
    "groups": _GROUPS,
    "groups_names": _GROUPS,
    "group_ids": _GROUPS,
    "member_id": (MEMBER, ""),
    "protocol_type": ("consumer",),
    "protocol_name": ("range",),
    "transactional_ids": (TRANSACTIONAL_ID,),
    "path": ("./data",),
    "feature": ("transaction.version", "metadata.version"),
    "subscribed_topic_regex": ("t.*", "("),
    "server_assignor": ("uniform",),
    "mechanism": ("PLAIN",),
    "client_software_name": ("tests",),
    "client_software_version": ("1",),
    "topic_names": _TOPICS,
    "subscribed_topic_names": _TOPICS,
    "source_topics": _TOPICS,
    "state_filters": ("Ongoing",),
    "states_filter": ("Stable",),
    "types_filter": ("classic",),
    "configuration_keys": ("retention.ms",),
    "entity_type": ("user", "client-id", "ip"),
}


def usual_values(field: Field, named: Named) -> Sequence[Any]:
    """Returns the usual values of a field or of an array's elements."""
    match field.element:
        case "bool":
            return (False, True)
        case "float64":
            return (1.0,)
        case "uuid":
            return (named.topic_id, NULL_UUID)
        case "records":
            return (_batch(), _batch(transactional=True), b"")
        case "bytes":
            return (named.token_hmac if field.attribute == "hmac" else b"",)
        case "string":
            return _texts(field)
        case _:
            return _numbers(field, named)


def _batch(*, transactional: bool = False) -> bytes:
    records = [Record(value=b"v")]
    if not transactional:
        return bytes(build_batch(records))
    return bytes(build_batch(records, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0))


def _texts(field: Field) -> Sequence[str]:
    match field.entity_type:
        case "topicName":
            return _TOPICS
        case "groupId":
            return _GROUPS
        case "transactionalId":
            return (TRANSACTIONAL_ID,)
    return _TEXTS.get(field.attribute, ("name",))


def _numbers(field: Field, named: Named) -> Sequence[int]:
    if field.entity_type == "producerId" or field.attribute == "producer_id":
        return (named.producer_id, -1)
    if field.attribute in _NUMBERS:
        return _NUMBERS[field.attribute]
    return (field.default if isinstance(field.default, int) else 0,)


def _values_of_type(field: Field) -> Sequence[Any]:
    match field.element:
        case "bool" | "float64":
            return ()
        case "uuid":
            return (b"u" * 16,)
        case "records" | "bytes":
            return (b"x",)
        case "string":
            return ("", UNKNOWN)
        case integer:
            bits = int(integer.removeprefix("u").removeprefix("int"))
            if integer.startswith("u"):
                return (0, 1, (1 << bits) - 1)
            return (-(1 << bits - 1), -2, -1, 0, 1, 2, 3, (1 << bits - 1) - 1)
