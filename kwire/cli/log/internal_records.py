"""Decodes the records of internal topics into plain values: dictionaries, lists, text and numbers.

The topic's name selects the decoder. The messages are those of `kwire_protocol.internal`, generated from Kafka's own
definitions.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import cast

from kwire_protocol.api_info import RecordInfo
from kwire_protocol.control_records import ControlType, read_control_type, read_coordinator_epoch
from kwire_protocol.internal import (
    GROUP_KEYS,
    GROUP_VALUES,
    METADATA_RECORDS,
    REMOTE_LOG_METADATA_RECORDS,
    SHARE_STATE_KEYS,
    SHARE_STATE_VALUES,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
)
from kwire_protocol.internal.consumer_offsets import GroupMetadataValue
from kwire_protocol.internal.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kwire_protocol.internal.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kwire_protocol.records import InvalidBatch, Record
from kwire_protocol.wire import GeneratedMessage, Message, ProtocolError, Reader, UnsupportedVersion, uuid_to_text

from kwire.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from kwire.metadata.records import read_framed
from kwire.names.topic_names import CLUSTER_METADATA, CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

Plain = Mapping[str, object]
Decoder = Callable[[Record], "tuple[Plain | None, Plain | None]"]
"""Key and value of a record; raises one of NOT_DECODED."""
NOT_DECODED = (ProtocolError, UnsupportedVersion, InvalidBatch)

_TOPICS = {
    CONSUMER_OFFSETS: "offsets",
    TRANSACTION_STATE: "transactions",
    CLUSTER_METADATA: "metadata",
    SHARE_GROUP_STATE: "share",
    "__remote_log_metadata": "remote",
}
_CONTROL_VALUES: dict[ControlType, type[Message]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


def decoder_for(topic: str, decoder_name: str) -> Decoder | None:
    """Returns the decoder that --decoder names, or the topic's own for "auto". None for a topic of applications."""
    return _DECODERS.get(_TOPICS.get(topic, "none") if decoder_name == "auto" else decoder_name)


def decode_control(record: Record) -> Plain:
    """The fields of a control record. Raises one of NOT_DECODED."""
    control_type = read_control_type(record.key)
    if control_type is None:
        return {"control_type": "unknown"}
    fields: dict[str, object] = {"control_type": control_type.name}
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        fields["coordinator_epoch"] = read_coordinator_epoch(record.value)
    elif record.value is not None:
        # Each of these values begins with its version.
        fields |= plain(_CONTROL_VALUES[control_type].read(Reader(record.value), Reader(record.value).int16()))
    return fields


def _keyed(keys: Mapping[int, RecordInfo], values: Mapping[int, RecordInfo]) -> Decoder:
    def decode(record: Record) -> tuple[Plain | None, Plain | None]:
        if record.key is None:
            return None, None
        reader = Reader(record.key)
        kind = reader.int16()
        if kind not in keys:
            raise ProtocolError(f"unknown key type {kind}")
        key = {"type": keys[kind].name, **plain(keys[kind].record_class.read(reader, 0))}
        if record.value is None:
            return key, None
        reader = Reader(record.value)
        version = reader.int16()
        message = values[kind].record_class.read(reader, version)
        value = {"type": values[kind].name, "version": version, **plain(message)}
        if isinstance(message, GroupMetadataValue) and message.protocol_type == CONSUMER_PROTOCOL_TYPE:
            value["members"] = [
                {
                    **plain(member),
                    "subscription": _of_consumer(ConsumerProtocolSubscription, member.subscription),
                    "assignment": _of_consumer(ConsumerProtocolAssignment, member.assignment),
                }
                for member in message.members
            ]
        return key, value

    return decode


def _of_consumer(kind: type[ConsumerProtocolSubscription | ConsumerProtocolAssignment], data: bytes) -> object:
    """A member's subscription or assignment; base64 if it is not in the consumer protocol's format."""
    try:
        reader = Reader(data)
        version = min(max(reader.int16(), 0), kind.versions.stop - 1)
        return {"version": version, **plain(kind.read(reader, version))}
    except NOT_DECODED:
        return _plain(data, "bytes")


def _framed(known: Mapping[int, RecordInfo]) -> Decoder:
    def decode(record: Record) -> tuple[Plain | None, Plain | None]:
        if record.value is None:
            return None, None
        version, message = read_framed(record.value, known)
        return None, {"type": type(message).__name__, "version": version, **plain(message)}

    return decode


_DECODERS: dict[str, Decoder] = {
    "offsets": _keyed(GROUP_KEYS, GROUP_VALUES),
    "transactions": _keyed(TRANSACTION_KEYS, TRANSACTION_VALUES),
    "share": _keyed(SHARE_STATE_KEYS, SHARE_STATE_VALUES),
    "metadata": _framed(METADATA_RECORDS),
    "remote": _framed(REMOTE_LOG_METADATA_RECORDS),
}


def plain(message: object) -> dict[str, object]:
    """The fields of a generated message. UUIDs are in Kafka's text form."""
    known = cast("GeneratedMessage", message)
    declared = type(known).__init__.__annotations__
    return {name: _plain(getattr(known, name), declared[name]) for name in known.__slots__}


def _plain(value: object, declared: str) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return uuid_to_text(data) if "Uuid" in declared else base64.b64encode(data).decode()
    if isinstance(value, list | tuple):
        return [_plain(item, declared) for item in value]
    if isinstance(value, GeneratedMessage):
        return plain(value)
    return value
