"""Reads topic ids and topic configurations from `__cluster_metadata` in a log dir.

The log may be KRaft's, which starts with a snapshot. If it is damaged, the readable part is used.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from kwire_protocol.internal.metadata_configs import ConfigRecord
from kwire_protocol.internal.metadata_topics import RemoveTopicRecord, TopicRecord
from kwire_protocol.records import InvalidBatch, iter_records
from kwire_protocol.wire import ProtocolError
from kwire_storage.disk.files import Disk
from kwire_storage.inspection import Batch, TopicFacts, walk

from kwire.cli.log.target import log_file_base
from kwire.metadata.image import ConfigResourceType
from kwire.metadata.log import METADATA_TOPIC
from kwire.metadata.records import MetadataRecord, decode_record

_FOLDER = f"{METADATA_TOPIC}-0"


@attrs.define
class _Facts:
    ids: dict[str, bytes] = attrs.field(factory=dict)
    configs: dict[str, dict[str, str]] = attrs.field(factory=dict)

    def apply(self, record: MetadataRecord) -> None:
        match record:
            case TopicRecord():
                self.ids[record.name] = record.topic_id
            case RemoveTopicRecord():
                for name in [name for name, topic_id in self.ids.items() if topic_id == record.topic_id]:
                    del self.ids[name]
                    self.configs.pop(name, None)
            case ConfigRecord() if record.resource_type == ConfigResourceType.TOPIC:
                settings = self.configs.setdefault(record.resource_name, {})
                if record.value is None:
                    settings.pop(record.name, None)
                else:
                    settings[record.name] = record.value

    def topics(self) -> dict[str, TopicFacts]:
        return {name: _topic(topic_id, self.configs.get(name, {})) for name, topic_id in self.ids.items()}


def _topic(topic_id: bytes, settings: dict[str, str]) -> TopicFacts:
    policy = settings.get("cleanup.policy")
    interval = settings.get("index.interval.bytes", "")
    return TopicFacts(
        topic_id,
        None if policy is None else "compact" in policy,
        int(interval) if interval.isdecimal() else TopicFacts(topic_id).index_interval_bytes,
    )


def read_topics(disk: Disk) -> dict[str, TopicFacts]:
    """Returns topics by name; empty if the folder has no readable metadata log."""
    facts = _Facts()
    try:
        for value in _values(disk):
            try:
                facts.apply(decode_record(value))
            except ProtocolError:
                # A record of a newer version of Kafka.
                continue
    except OSError:
        return {}
    return facts.topics()


def _values(disk: Disk) -> Iterator[bytes]:
    listed = sorted(disk.listdir(_FOLDER))
    snapshots = [name for name in listed if name.endswith(".checkpoint") and log_file_base(name) is not None]
    begin = 0
    if snapshots:
        begin = log_file_base(snapshots[-1]) or 0
    logs = [name for name in listed if name.endswith(".log") and log_file_base(name) is not None]
    for name in [*snapshots[-1:], *logs]:
        is_snapshot = name.endswith(".checkpoint")
        base = 0 if is_snapshot else log_file_base(name) or 0
        file = disk.open_read(f"{_FOLDER}/{name}")
        try:
            for piece in walk(file, file.size, base):
                if not isinstance(piece, Batch) or piece.data is None or piece.header.is_control:
                    continue
                try:
                    for record in iter_records(piece.data):
                        if record.value is not None and (is_snapshot or record.offset >= begin):
                            yield record.value
                except InvalidBatch:
                    continue
        finally:
            file.close()
