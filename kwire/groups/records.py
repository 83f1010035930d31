"""The records of `__consumer_offsets`, byte for byte Kafka's: the part of a group that survives a restart.

A key is an int16, the record's type (Kafka's `CoordinatorRecordType`), then the key's fields. A value is an int16
version, then the fields of that version. A record without a value is a tombstone. Modules by type:

    type        contents                    in
    0, 1        an offset was committed     offsets/records.py
    2           what a classic group is     classic/records.py
    3-8, 16     what a consumer group is    consumer/changes.py
    10-15       what a share group is       share/changes.py
    17, 19-23   what a streams group is     streams/changes.py

What the last three have in common is in modern/changes.py. Other types are skipped.
"""

from __future__ import annotations

from kwire_protocol.wire import Message, Reader, Writer

from kwire.coordinators.effects import KeyedRecord

KEY_VERSION = 0
"""All keys have the one version."""


def read_head(field: bytes) -> tuple[int, Reader]:
    """The int16 at the start of a key or a value, and a reader for its fields. Raises ProtocolError."""
    reader = Reader(field)
    return reader.int16(), reader


def write_record(record_type: int, key: Message, value: Message | None = None, value_version: int = 0) -> KeyedRecord:
    """The record's bytes; a tombstone without a `value`."""
    key_writer = Writer()
    key_writer.int16(record_type)
    key.write(key_writer, KEY_VERSION)
    if value is None:
        return key_writer.getvalue(), None
    value_writer = Writer()
    value_writer.int16(value_version)
    value.write(value_writer, value_version)
    return key_writer.getvalue(), value_writer.getvalue()
