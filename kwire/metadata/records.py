"""Kafka's metadata records as bytes: the value of a record in `__cluster_metadata`.

A value is the frame version (1), the record's type and its version, each an unsigned varint, then the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self

from kwire_protocol.api_info import RecordInfo
from kwire_protocol.internal import METADATA_RECORDS
from kwire_protocol.wire import Buffer, ProtocolError, Reader, Writer

FRAME_VERSION = 1


class MetadataRecord(Protocol):
    """The interface of all records in `kwire_protocol.internal.metadata_*`."""

    api_key: ClassVar[int]
    versions: ClassVar[range]

    @classmethod
    def read(cls, r: Reader, version: int) -> Self: ...

    def write(self, w: Writer, version: int) -> None: ...


def encode_record(record: MetadataRecord) -> bytes:
    """Encodes a record in its newest version, that of metadata.version 30."""
    version = record.versions.stop - 1
    writer = Writer()
    writer.unsigned_varint(FRAME_VERSION)
    writer.unsigned_varint(record.api_key)
    writer.unsigned_varint(version)
    record.write(writer, version)
    return writer.getvalue()


def decode_record(value: Buffer) -> MetadataRecord:
    """Decodes a record. Raises ProtocolError for an unknown frame, type or version."""
    return read_framed(value, METADATA_RECORDS)[1]


def read_framed(value: Buffer, known: Mapping[int, RecordInfo]) -> tuple[int, MetadataRecord]:
    """Returns version and record in such a frame, of one of these types; raises as `decode_record` does."""
    reader = Reader(value)
    frame_version = reader.unsigned_varint()
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"a metadata record has frame version {frame_version}, {FRAME_VERSION} is known")
    record_type = reader.unsigned_varint()
    version = reader.unsigned_varint()
    info = known.get(record_type)
    if info is None or not info.min_version <= version <= info.max_version:
        raise ProtocolError(f"a metadata record has type {record_type} and version {version}, which is not known")
    record: MetadataRecord = info.record_class.read(reader, version)
    return version, record
