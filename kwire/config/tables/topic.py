"""Every topic configuration of Kafka 4.3, and errors.deadletterqueue.group.enable of Kafka 4.4 (KIP-1191).

Each with type, default, permitted values, and the broker configurations behind it.
"""

from __future__ import annotations

from typing import Final

from kwire.config.definition import ConfigDefinition, ConfigType, Validator, Value, table
from kwire.config.validators import ListOf, OneOf, Range, RangeOr, ThrottledReplicas

MAX_LONG: Final = (1 << 63) - 1
MAX_INT: Final = (1 << 31) - 1
HOURS_TO_MS: Final = 3_600_000
MINUTES_TO_MS: Final = 60_000

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = ("compact", "delete")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
SEGMENT_BYTES_MIN: Final = 1 << 20


def _topic(
    name: str,
    type_: ConfigType,
    default: Value,
    documentation: str,
    validator: Validator | None = None,
    *synonyms: str | tuple[str, int],
    has_effect: bool = True,
    internal: bool = False,
) -> ConfigDefinition:
    return ConfigDefinition(
        name,
        type_,
        default,
        validator,
        documentation,
        broker_synonyms=tuple((synonym, 1) if isinstance(synonym, str) else synonym for synonym in synonyms),
        has_effect=has_effect,
        internal=internal,
    )


_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_DOUBLE, _STRING, _LIST = ConfigType.DOUBLE, ConfigType.STRING, ConfigType.LIST

TOPIC_CONFIGS: Final = table(
    _topic(
        "cleanup.policy",
        _LIST,
        ("delete",),
        "What happens to old records: deleted by age and size, compacted to the latest per key, or both.",
        ListOf(CLEANUP_POLICIES),
        "log.cleanup.policy",
    ),
    _topic(
        "compression.gzip.level",
        _INT,
        -1,
        "The gzip level when the broker compresses: 1 to 9, or -1 for gzip's default.",
        RangeOr(1, 9, -1),
        "compression.gzip.level",
    ),
    _topic(
        "compression.lz4.level",
        _INT,
        9,
        "The lz4 level when the broker compresses.",
        Range(1, 17),
        "compression.lz4.level",
    ),
    _topic(
        "compression.type",
        _STRING,
        "producer",
        "The codec of stored batches; 'producer' keeps the producer's codec.",
        OneOf(COMPRESSION_TYPES),
        "compression.type",
    ),
    _topic(
        "compression.zstd.level",
        _INT,
        3,
        "The zstd level when the broker compresses.",
        Range(-131072, 22),
        "compression.zstd.level",
    ),
    _topic(
        "delete.retention.ms",
        _LONG,
        86_400_000,
        "How long tombstones are kept in a compacted topic.",
        Range(0),
        "log.cleaner.delete.retention.ms",
    ),
    _topic(
        "errors.deadletterqueue.group.enable",
        _BOOLEAN,
        False,
        "Whether share groups may write what they give up to this topic.",
    ),
    _topic(
        "file.delete.delay.ms",
        _LONG,
        60_000,
        "How long a deleted segment's files stay on disk for readers that still use them.",
        Range(0),
        "log.segment.delete.delay.ms",
    ),
    _topic(
        "flush.messages",
        _LONG,
        MAX_LONG,
        "Fsync the log after this many records; with 1 every acknowledged record is durable.",
        Range(1),
        "log.flush.interval.messages",
    ),
    _topic(
        "flush.ms",
        _LONG,
        MAX_LONG,
        "Fsync the log when its oldest unflushed record is this old.",
        Range(0),
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    ),
    _topic(
        "follower.replication.throttled.replicas",
        _LIST,
        (),
        "Followers that fetch no faster than follower.replication.throttled.rate until they are in sync: "
        "partition:broker pairs, or *.",
        ThrottledReplicas(),
    ),
    _topic(
        "index.interval.bytes",
        _INT,
        4096,
        "The offset index has an entry for about this many bytes of log.",
        Range(0),
        "log.index.interval.bytes",
    ),
    _topic(
        "internal.segment.bytes",
        _INT,
        None,
        "Overrides segment.bytes without its lower bound; for tests of rolling and retention.",
        None,
        internal=True,
    ),
    _topic(
        "leader.replication.throttled.replicas",
        _LIST,
        (),
        "Leaders whose followers fetch no faster than leader.replication.throttled.rate until they are in sync: "
        "partition:broker pairs, or *.",
        ThrottledReplicas(),
    ),
    _topic(
        "local.retention.bytes",
        _LONG,
        -2,
        "Bytes kept on the local disk under tiered storage; -2 follows retention.bytes.",
        Range(-2),
        "log.local.retention.bytes",
        has_effect=False,
    ),
    _topic(
        "local.retention.ms",
        _LONG,
        -2,
        "Time kept on the local disk under tiered storage; -2 follows retention.ms.",
        Range(-2),
        "log.local.retention.ms",
        has_effect=False,
    ),
    _topic(
        "max.compaction.lag.ms",
        _LONG,
        MAX_LONG,
        "The maximum time before a record is compacted.",
        Range(1),
        "log.cleaner.max.compaction.lag.ms",
    ),
    _topic(
        "max.message.bytes",
        _INT,
        1_048_588,
        "The maximum size of a record batch, after compression.",
        Range(0),
        "message.max.bytes",
    ),
    _topic(
        "message.timestamp.after.max.ms",
        _LONG,
        3_600_000,
        "How far in the future a producer's timestamp may be.",
        Range(0),
        "log.message.timestamp.after.max.ms",
    ),
    _topic(
        "message.timestamp.before.max.ms",
        _LONG,
        MAX_LONG,
        "How far in the past a producer's timestamp may be.",
        Range(0),
        "log.message.timestamp.before.max.ms",
    ),
    _topic(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        "Whether a record has its producer's time or the time of the append.",
        OneOf(TIMESTAMP_TYPES),
        "log.message.timestamp.type",
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        0.5,
        "The share of a compacted log that must be dirty before the log is compacted.",
        Range(0, 1),
        "log.cleaner.min.cleanable.ratio",
    ),
    _topic(
        "min.compaction.lag.ms",
        _LONG,
        0,
        "The minimum time before a record is compacted.",
        Range(0),
        "log.cleaner.min.compaction.lag.ms",
    ),
    _topic(
        "min.insync.replicas",
        _INT,
        1,
        "With acks=all, the number of replicas that must be in sync to accept a write.",
        Range(1),
        "min.insync.replicas",
    ),
    _topic(
        "preallocate",
        _BOOLEAN,
        False,
        "Whether new segment files are preallocated.",
        None,
        "log.preallocate",
        has_effect=False,
    ),
    _topic(
        "remote.log.copy.disable",
        _BOOLEAN,
        False,
        "Stops copying to tiered storage.",
        has_effect=False,
    ),
    _topic(
        "remote.log.delete.on.disable",
        _BOOLEAN,
        False,
        "Deletes what tiered storage holds when it is switched off.",
        has_effect=False,
    ),
    _topic(
        "remote.storage.enable",
        _BOOLEAN,
        False,
        "Whether the topic uses tiered storage.",
        has_effect=False,
    ),
    _topic(
        "retention.bytes",
        _LONG,
        -1,
        "Delete old segments of a partition beyond this size; -1 sets no limit.",
        None,
        "log.retention.bytes",
    ),
    _topic(
        "retention.ms",
        _LONG,
        604_800_000,
        "Delete segments older than this; -1 keeps them forever.",
        Range(-1),
        "log.retention.ms",
        ("log.retention.minutes", MINUTES_TO_MS),
        ("log.retention.hours", HOURS_TO_MS),
    ),
    _topic(
        "segment.bytes",
        _INT,
        1 << 30,
        "Roll a new segment when the current one would exceed this size.",
        Range(SEGMENT_BYTES_MIN),
        "log.segment.bytes",
    ),
    _topic(
        "segment.index.bytes",
        _INT,
        10 << 20,
        "The maximum size of an index. The segment is rolled when its index is full.",
        Range(4),
        "log.index.size.max.bytes",
    ),
    _topic(
        "segment.jitter.ms",
        _LONG,
        0,
        "The maximum that is randomly subtracted from segment.ms, so that segments do not all roll at once.",
        Range(0),
        "log.roll.jitter.ms",
        ("log.roll.jitter.hours", HOURS_TO_MS),
    ),
    _topic(
        "segment.ms",
        _LONG,
        604_800_000,
        "Roll a new segment after this time even if the current one is not full.",
        Range(1),
        "log.roll.ms",
        ("log.roll.hours", HOURS_TO_MS),
    ),
    _topic(
        "unclean.leader.election.enable",
        _BOOLEAN,
        False,
        "Whether an out-of-sync replica may become leader if no other can, which loses records.",
        None,
        "unclean.leader.election.enable",
    ),
)
