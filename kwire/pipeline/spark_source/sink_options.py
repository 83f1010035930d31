"""The options of `df.write.format("kwire")` and `writeStream`.

| option | means |
|---|---|
| kafka.bootstrap.servers | HOST:PORT, or several with commas |
| topic | the topic of all rows; without it, the column topic is used for each row |
| kwire.sink.mode | `exactly-once`, of a stream and its default; `at-least-once`, the default of a batch |
| kwire.sink.id | of a stream that is exactly-once: its name in the ledger, instead of the query's id |
| kwire.sink.ledger.topic | the ledger: `kwire-ledger`, created if missing |
| kafka.transaction.timeout.ms | how long a batch may take at most, twice; 15 minutes, which brokers allow by default |
| kafka.compression.type | none, gzip, snappy, lz4 or zstd |
| kafka.client.id, kafka.request.timeout.ms, kafka.delivery.timeout.ms | as of any producer |
| kafka.acks, kafka.enable.idempotence | `all` and `true`: no other values are supported |
| kafka.batch.size, kafka.linger.ms, kafka.max.request.size, includeHeaders | no effect |

Exactly-once: see `kwire/pipeline/delivery/committing.py` for how it works. At-least-once: rows are written as they
arrive, and a failed batch may have been written in part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
from kwire_protocol.compression import CODEC_NAMES, NONE

from kwire.pipeline.delivery.ledger import DEFAULT_TOPIC
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.options import CLIENT_ID, Given

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000
DEFAULT_TIMEOUT_MS: Final = 30_000

_MODES = ("exactly-once", "at-least-once")
_WITHOUT_EFFECT = ("kafka.batch.size", "kafka.linger.ms", "kafka.max.request.size", "includeHeaders")
_KNOWN: Final = (
    "kafka.bootstrap.servers",
    "topic",
    "kwire.sink.mode",
    "kwire.sink.id",
    "kwire.sink.ledger.topic",
    "kafka.transaction.timeout.ms",
    "kafka.compression.type",
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.delivery.timeout.ms",
    "kafka.acks",
    "kafka.enable.idempotence",
    "kafka.security.protocol",
    "checkpointLocation",
    *_WITHOUT_EFFECT,
)


@attrs.frozen(kw_only=True)
class SinkOptions:
    bootstrap: str
    topic: str | None = None
    is_exactly_once: bool = False
    sink_id: str | None = None
    ledger_topic: str = DEFAULT_TOPIC
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    compression: int = NONE
    timeout_s: float = DEFAULT_TIMEOUT_MS / 1000
    client_id: str = CLIENT_ID


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Raises PipelineError, in one line, for an option that is missing, wrong or not supported."""
    given = Given(options, _KNOWN)
    mode = given.one_of("kwire.sink.mode", _MODES, "exactly-once" if streaming else "at-least-once")
    if mode == "exactly-once" and not streaming:
        raise PipelineError(
            "option kwire.sink.mode is exactly-once: that is for streams, whose batches have numbers. "
            "Leave it out, or write the rows by a stream with Trigger.AvailableNow"
        )
    given.one_of("kafka.acks", ("all", "-1"), "all")
    given.one_of("kafka.enable.idempotence", ("true",), "true")
    codec = given.one_of("kafka.compression.type", CODEC_NAMES, "none")
    timeouts_ms = (given.duration_ms(name, 0) for name in ("kafka.request.timeout.ms", "kafka.delivery.timeout.ms"))
    timeout_ms = max(timeouts_ms) or DEFAULT_TIMEOUT_MS
    return SinkOptions(
        bootstrap=given.required("kafka.bootstrap.servers", "HOST:PORT, or several with commas"),
        topic=given.text("topic", "") or None,
        is_exactly_once=mode == "exactly-once",
        sink_id=given.text("kwire.sink.id", "") or None,
        ledger_topic=given.text("kwire.sink.ledger.topic", DEFAULT_TOPIC),
        transaction_timeout_ms=given.count("kafka.transaction.timeout.ms") or DEFAULT_TRANSACTION_TIMEOUT_MS,
        compression=CODEC_NAMES.index(codec),
        timeout_s=timeout_ms / 1000,
        client_id=given.text("kafka.client.id", CLIENT_ID),
    )
