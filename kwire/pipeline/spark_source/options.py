"""The options of `spark.read.format("kwire")` and `readStream`: those of Spark's Kafka connector.

| option | means |
|---|---|
| kafka.bootstrap.servers | HOST:PORT, or several with commas |
| subscribe, subscribePattern, assign | one of them: topics with commas; a pattern found in names; {"topic": [0, 1]} |
| startingTimestamp, startingOffsetsByTimestamp, startingOffsets | where to begin; the first one given counts |
| endingTimestamp, endingOffsetsByTimestamp, endingOffsets | of a batch: where to end; the first one given counts |
| startingOffsetsByTimestampStrategy | `error`, or `latest` if no record has the time or a later one |
| failOnDataLoss | `true`, or `false` to continue when records are gone that should have been read |
| minPartitions, maxRecordsPerPartition | the number of tasks (the connector uses the latter in streams) |
| maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay | of a stream: the size of a micro-batch |
| includeHeaders | `true` for a column of headers |
| kafkaConsumer.pollTimeoutMs | the time that a task waits for brokers, and for records that should exist |
| kafka.isolation.level | `read_uncommitted`, or `read_committed` |
| kafka.max.partition.fetch.bytes, kafka.fetch.max.wait.ms, kafka.check.crcs, kafka.client.id | as of any consumer |
| groupIdPrefix, kafka.group.id | no effect: there is no group |
| fetchOffset.numRetries, fetchOffset.retryIntervalMs | no effect: pollTimeoutMs limits the retries |

The defaults are the connector's too: a batch reads from the earliest to the latest offset, a stream from the latest.
Any other option is refused by name. Spark passes names in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from kwire.client.cluster import TopicPartition
from kwire.client.fetching import DEFAULT_FETCH_BYTES, DEFAULT_MAX_WAIT_MS
from kwire.client.offsets import IsolationLevel
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.positions import EARLIEST, LATEST, parse_assignment, parse_positions

DEFAULT_TIMEOUT_MS: Final = 120_000
DEFAULT_MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
CLIENT_ID: Final = "kwire-spark"

_SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")
_WITHOUT_EFFECT = ("groupIdPrefix", "kafka.group.id", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
_KNOWN: Final = (
    "kafka.bootstrap.servers",
    *_SUBSCRIPTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.check.crcs",
    "kafka.client.id",
    "kafka.security.protocol",
    *_WITHOUT_EFFECT,
)
_TIME_UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}


@attrs.frozen
class Subscription:
    """The topics or partitions to read: exactly one of the three is given."""

    assigned: frozenset[TopicPartition] | None = None
    topics: frozenset[str] | None = None
    pattern: str | None = None


@attrs.frozen
class Bound:
    """The first or the last offsets to read. Exactly one of the four fields after `option` is given."""

    option: str
    word: int | None = None
    """EARLIEST or LATEST, for every partition."""
    offsets: Mapping[TopicPartition, int] | None = None
    """Offsets by partition; they may be EARLIEST or LATEST."""
    time_ms: int | None = None
    """A time for every partition: the offset is that of the first record at or after it."""
    times_ms: Mapping[TopicPartition, int] | None = None


@attrs.frozen(kw_only=True)
class SourceOptions:
    bootstrap: str
    subscription: Subscription
    starting: Bound
    ending: Bound
    latest_where_no_record_is_so_late: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    include_headers: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_MS / 1000
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    max_wait_ms: int = DEFAULT_MAX_WAIT_MS
    check_crcs: bool = True
    client_id: str = CLIENT_ID


class Given:
    """The given options, by name. Raises PipelineError, which names the option."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        """Raises PipelineError for a name that is not among the known ones."""
        self._values = {name.lower(): value for name, value in options.items()}
        names = {name.lower() for name in known}
        for name in self._values:
            if name not in names:
                raise _unknown(name, known)
        protocol = self.text("kafka.security.protocol", "PLAINTEXT")
        if protocol.upper() != "PLAINTEXT":
            raise _plain_text_only("kafka.security.protocol")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str) -> str:
        return self._values.get(name.lower(), default).strip()

    def required(self, name: str, what: str) -> str:
        found = self.text(name, "")
        if not found:
            raise PipelineError(f"option {name} is missing: give {what}")
        return found

    def is_true(self, name: str, *, default: bool) -> bool:
        return self.one_of(name, ("true", "false"), "true" if default else "false") == "true"

    def one_of(self, name: str, words: tuple[str, ...], default: str) -> str:
        found = self.text(name, default).lower()
        if found not in words:
            raise PipelineError(f"option {name} is {found!r}: give one of {', '.join(words)}")
        return found

    def count(self, name: str, *, least: int = 1) -> int | None:
        if name not in self:
            return None
        found = self.text(name, "")
        if not (found.isascii() and found.isdigit()) or int(found) < least:
            raise PipelineError(f"option {name} is {found!r}: give a whole number of {least} or more")
        return int(found)

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Returns a duration: a number of ms, or one with a unit, such as `15m` or `15 minutes`."""
        if name not in self:
            return default_ms
        found = self.text(name, "")
        parts = re.fullmatch(r"(\d+)\s*([a-z]*)", found.lower())
        unit = parts[2] if parts else "?"
        scale = _TIME_UNITS_MS.get(unit or "ms") or _TIME_UNITS_MS.get(unit.removesuffix("s"))
        if parts is None or scale is None:
            raise PipelineError(f"option {name} is {found!r}: give a time such as 500ms, 30s or 15m")
        return int(parts[1]) * scale


def parse_source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Raises PipelineError, in one line, for an option that is missing, wrong or not supported."""
    given = Given(options, _KNOWN)
    starting = _bound(given, "starting", LATEST if streaming else EARLIEST)
    ending = _bound(given, "ending", LATEST)
    if streaming:
        for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            if name in given:
                raise PipelineError(f"option {name} is not for streams: leave it out, a stream has no end")
    else:
        _check_batch(starting, LATEST, "latest", "begin")
        _check_batch(ending, EARLIEST, "earliest", "end")
    strategy = given.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    isolation = given.one_of("kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted")
    least, most = given.count("minOffsetsPerTrigger"), given.count("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise PipelineError(f"option minOffsetsPerTrigger, {least}, is above maxOffsetsPerTrigger, {most}")
    return SourceOptions(
        bootstrap=given.required("kafka.bootstrap.servers", "HOST:PORT, or several with commas"),
        subscription=_subscription(given),
        starting=starting,
        ending=ending,
        latest_where_no_record_is_so_late=strategy == "latest",
        fail_on_data_loss=given.is_true("failOnDataLoss", default=True),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        include_headers=given.is_true("includeHeaders", default=False),
        timeout_s=given.duration_ms("kafkaConsumer.pollTimeoutMs", DEFAULT_TIMEOUT_MS) / 1000,
        isolation_level=IsolationLevel[isolation.upper()],
        fetch_bytes=given.count("kafka.max.partition.fetch.bytes") or DEFAULT_FETCH_BYTES,
        max_wait_ms=given.duration_ms("kafka.fetch.max.wait.ms", DEFAULT_MAX_WAIT_MS),
        check_crcs=given.is_true("kafka.check.crcs", default=True),
        client_id=given.text("kafka.client.id", CLIENT_ID),
    )


def _subscription(given: Given) -> Subscription:
    names = [name for name in _SUBSCRIPTIONS if name in given]
    if len(names) != 1:
        found = "none is given" if not names else f"{' and '.join(names)} are given"
        raise PipelineError(f"one of the options {', '.join(_SUBSCRIPTIONS)} says what to read: {found}")
    (name,) = names
    text = given.text(name, "")
    if name == "assign":
        return Subscription(assigned=parse_assignment(name, text))
    if name == "subscribe":
        topics = frozenset(topic.strip() for topic in text.split(",") if topic.strip())
        if not topics:
            raise PipelineError("option subscribe names no topic: give one, or several with commas")
        return Subscription(topics=topics)
    try:
        re.compile(text)
    except re.error as error:
        raise PipelineError(f"option subscribePattern is no regular expression: {error}") from None
    if not text:
        raise PipelineError("option subscribePattern is empty: give a pattern, which whole names of topics match")
    return Subscription(pattern=text)


def _bound(given: Given, which: str, default: int) -> Bound:
    one_time, times, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if one_time in given:
        text = given.text(one_time, "")
        if not re.fullmatch(r"-?\d+", text):
            raise PipelineError(f"option {one_time} is {text!r}: give a time in ms since the epoch")
        return Bound(one_time, time_ms=int(text))
    if times in given:
        return Bound(times, times_ms=parse_positions(times, given.text(times, "")))
    if offsets not in given:
        return Bound(offsets, word=default)
    text = given.text(offsets, "")
    match text.lower():
        case "earliest":
            return Bound(offsets, word=EARLIEST)
        case "latest":
            return Bound(offsets, word=LATEST)
    found = parse_positions(offsets, text)
    if any(offset < EARLIEST for offset in found.values()):
        raise PipelineError(f"option {offsets} has a negative offset: -1 is the latest, -2 the earliest one")
    return Bound(offsets, offsets=found)


def _check_batch(bound: Bound, word: int, name: str, what: str) -> None:
    if bound.word == word or (bound.offsets and word in bound.offsets.values()):
        raise PipelineError(f"option {bound.option} is {name} ({word}): a batch cannot {what} there")


def _unknown(name: str, known: tuple[str, ...]) -> PipelineError:
    if name.startswith(("kafka.security.", "kafka.sasl.", "kafka.ssl.")):
        return _plain_text_only(name)
    if name in ("kafka.key.deserializer", "kafka.value.deserializer", "kafka.key.serializer", "kafka.value.serializer"):
        return PipelineError(f"option {name} is not supported: keys and values are bytes, cast them in the query")
    return PipelineError(
        f"option {name} is not supported by the format kwire: leave it out. It supports {', '.join(known)}"
    )


def _plain_text_only(name: str) -> PipelineError:
    return PipelineError(
        f"option {name} is not supported yet: the format kwire speaks plain text (PLAINTEXT) only. "
        "Give it a listener of the brokers for that, or use the format kafka"
    )
