"""The small text files: their format and contents. storage/README.md has an example of each.

All functions turn values into bytes or bytes into values; the caller writes them, mostly with `Disk.write_atomic`. A
file that cannot be read raises CorruptLogError: guessing would lose offsets silently.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping

import attrs

from kwire_storage.errors import CorruptLogError

TopicPartition = tuple[str, int]

_VERSION = "0"


def _encode_rows(rows: Iterable[str]) -> bytes:
    rows = list(rows)
    return "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode()


def _decode_rows(data: bytes, fields: int) -> list[list[str]]:
    if not data:
        # Kafka creates its checkpoints empty, and some of them stay so.
        return []
    try:
        lines = data.decode("ascii").split("\n")
        version, count, rows = lines[0], int(lines[1]), [line.split() for line in lines[2:] if line.strip()]
    except (IndexError, ValueError):
        raise CorruptLogError(f"not a checkpoint: {data[:80]!r}") from None
    if version != _VERSION or count != len(rows) or any(len(row) != fields for row in rows):
        raise CorruptLogError(f"checkpoint of version {version} announces {count} rows, has {len(rows)}")
    return rows


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of an offset checkpoint, such as recovery-point-offset-checkpoint: a row is `topic partition
    offset`."""
    return _encode_rows(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))


def decode_offsets(data: bytes, name: str = "offset checkpoint") -> dict[TopicPartition, int]:
    """Returns the offsets by partition. Raises CorruptLogError with the file's name."""
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in _decode_rows(data, 3)}
    except (ValueError, CorruptLogError) as error:
        raise CorruptLogError(f"{name}: {error}") from None


def nonzero_offsets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Returns the offsets as a reader of such a checkpoint has them: a missing row counts as 0."""
    return {key: offset for key, offset in offsets.items() if offset}


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """The content of a leader-epoch-checkpoint: a row is `epoch start-offset`."""
    return _encode_rows(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    try:
        return [(int(epoch), int(start_offset)) for epoch, start_offset in _decode_rows(data, 2)]
    except ValueError as error:
        raise CorruptLogError(f"epoch checkpoint: {error}") from None


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The content of partition.metadata: the id of the folder's topic, since another topic may have had its name."""
    return f"version: 0\ntopic_id: {_uuid_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """The topic id, 16 bytes."""
    values = dict(line.split(": ", 1) for line in data.decode(errors="replace").splitlines() if ": " in line)
    if values.get("version") != "0" or "topic_id" not in values:
        raise CorruptLogError(f"not partition.metadata: {data[:80]!r}")
    return _uuid_of(values["topic_id"])


@attrs.frozen
class MetaProperties:
    """meta.properties: the cluster, node and directory id of a log dir. `directory_id` is 16 bytes."""

    cluster_id: str
    node_id: int
    directory_id: bytes

    def encode(self) -> bytes:
        return (
            "#\n"
            f"cluster.id={self.cluster_id}\n"
            f"directory.id={_uuid_text(self.directory_id)}\n"
            f"node.id={self.node_id}\n"
            "version=1\n"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> MetaProperties:
        lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
        values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "!")))
        try:
            if values["version"] != "1":
                raise CorruptLogError(f"meta.properties of version {values['version']}")
            return cls(values["cluster.id"], int(values["node.id"]), _uuid_of(values["directory.id"]))
        except (KeyError, ValueError) as error:
            raise CorruptLogError(f"meta.properties: {error}") from None


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The content of .kafka_cleanshutdown, the mark of a clean stop: the broker epoch, for the registration
    (KIP-966)."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """Returns the broker epoch; -1 (unknown) if it cannot be read."""
    try:
        content = json.loads(data)
        epoch = content["brokerEpoch"] if content["version"] == 0 else -1
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1


def _uuid_text(uuid: bytes) -> str:
    assert len(uuid) == 16, "a UUID has 16 bytes"
    return base64.urlsafe_b64encode(uuid)[:22].decode()


def _uuid_of(text: str) -> bytes:
    try:
        uuid = base64.urlsafe_b64decode(text.strip() + "==")
    except ValueError:
        uuid = b""
    if len(uuid) != 16:
        raise CorruptLogError(f"not a UUID: {text!r}")
    return uuid
