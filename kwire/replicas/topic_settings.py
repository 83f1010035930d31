"""Turns a topic's configuration, by Kafka's names, into the log's settings and the rules of appends and fetches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from kwire_protocol import compression
from kwire_protocol.records import CREATE_TIME, LOG_APPEND_TIME
from kwire_storage.config import LogConfig

from kwire.config.definition import Value
from kwire.config.server import ServerConfig
from kwire.replicas.quotas import ThrottledReplicas
from kwire.replicas.validation import COMPRESSION_OF_PRODUCER, TopicRules

_CODECS: Final = {
    "producer": COMPRESSION_OF_PRODUCER,
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
_LEVELS: Final = {"gzip": "compression.gzip.level", "lz4": "compression.lz4.level", "zstd": "compression.zstd.level"}


def _number(values: Mapping[str, Value], name: str) -> int:
    return cast(int, values[name])


def _timestamp_type(values: Mapping[str, Value]) -> int:
    return LOG_APPEND_TIME if values["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME


def _throttled(values: Mapping[str, Value], name: str) -> ThrottledReplicas:
    return ThrottledReplicas.parse(cast("tuple[str, ...]", values[name]))


def topic_rules(values: Mapping[str, Value]) -> TopicRules:
    """Returns the rules that appends and fetches check."""
    policy = cast("tuple[str, ...]", values["cleanup.policy"])
    codec = cast(str, values["compression.type"])
    return TopicRules(
        max_message_bytes=_number(values, "max.message.bytes"),
        compacted="compact" in policy,
        deletable="delete" in policy,
        compression=_CODECS[codec],
        compression_level=_number(values, _LEVELS[codec]) if codec in _LEVELS else None,
        timestamp_type=_timestamp_type(values),
        timestamp_before_max_ms=_number(values, "message.timestamp.before.max.ms"),
        timestamp_after_max_ms=_number(values, "message.timestamp.after.max.ms"),
        min_insync_replicas=_number(values, "min.insync.replicas"),
        throttled_leaders=_throttled(values, "leader.replication.throttled.replicas"),
        throttled_followers=_throttled(values, "follower.replication.throttled.replicas"),
    )


def log_config(values: Mapping[str, Value], server: ServerConfig) -> LogConfig:
    """Returns the settings by which the log rolls, is flushed, retained and compacted, and remembers producers."""
    return LogConfig(
        segment_bytes=cast("int | None", values["internal.segment.bytes"]) or _number(values, "segment.bytes"),
        segment_ms=_number(values, "segment.ms"),
        segment_jitter_ms=_number(values, "segment.jitter.ms"),
        segment_index_bytes=_number(values, "segment.index.bytes"),
        index_interval_bytes=_number(values, "index.interval.bytes"),
        retention_ms=_number(values, "retention.ms"),
        retention_bytes=_number(values, "retention.bytes"),
        cleanup_policy=",".join(cast("tuple[str, ...]", values["cleanup.policy"])),
        min_cleanable_dirty_ratio=cast(float, values["min.cleanable.dirty.ratio"]),
        min_compaction_lag_ms=_number(values, "min.compaction.lag.ms"),
        max_compaction_lag_ms=_number(values, "max.compaction.lag.ms"),
        delete_retention_ms=_number(values, "delete.retention.ms"),
        file_delete_delay_ms=_number(values, "file.delete.delay.ms"),
        max_message_bytes=_number(values, "max.message.bytes"),
        message_timestamp_type=cast(str, values["message.timestamp.type"]),
        flush_messages=_number(values, "flush.messages"),
        flush_ms=_number(values, "flush.ms"),
        producer_id_expiration_ms=server.producer_id_expiration_ms,
        producer_id_expiration_check_interval_ms=server.producer_id_expiration_check_interval_ms,
    )
