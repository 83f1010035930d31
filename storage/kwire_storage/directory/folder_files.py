"""The small files of a log dir and of a partition's folder: their formats, and the rules for absent ones."""

from __future__ import annotations

from kwire_storage import names
from kwire_storage.checkpoints import (
    MetaProperties,
    decode_partition_metadata,
    encode_partition_metadata,
)
from kwire_storage.disk.files import Disk


def read_meta(disk: Disk, listed: set[str]) -> MetaProperties | None:
    return MetaProperties.decode(disk.read_bytes(names.META_PROPERTIES)) if names.META_PROPERTIES in listed else None


def write_meta(disk: Disk, meta: MetaProperties) -> MetaProperties:
    disk.write_atomic(names.META_PROPERTIES, meta.encode())
    return meta


def read_topic_id(disk: Disk, folder: str) -> bytes | None:
    """Reads the topic id in a partition's folder, 16 bytes; None if the folder has none."""
    try:
        data = disk.read_bytes(f"{folder}/{names.PARTITION_METADATA}")
    except FileNotFoundError:
        return None
    # A crash, or a power cut, while it was made leaves nothing in it, or zeros.
    return decode_partition_metadata(data) if data.strip(b"\0") else None


def write_topic_id(disk: Disk, folder: str, topic_id: bytes) -> str:
    """Writes the topic id. Returns the path of the file, which the caller has to sync."""
    path = f"{folder}/{names.PARTITION_METADATA}"
    disk.write_bytes(path, encode_partition_metadata(topic_id))
    return path
