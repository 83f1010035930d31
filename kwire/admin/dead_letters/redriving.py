"""Sends the records of dead letters again, each once.

A transaction writes some records, and the note that their letters were sent (`redriven.py`). A redrive that is killed
has done both or neither, and the next one continues. The transactional id is derived from the dead-letter topic: a
redrive fences an earlier one of the same topic, aborts its open transaction, and only then reads what was sent.

A record keeps its key, value and headers, without the letter's headers, and gets COUNT_HEADER. Its timestamp is that of
the original record, or that of the letter if the letter has the copy. It goes to the partition from which it came, or
in another topic to the partition of its key.

A record that its topic refuses is reported, and the others are sent: its batch is halved until the record is alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import zip_longest
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.records import Record

from kwire.admin.dead_letters.letters import Letter, Origin, Selection, read_span, spans_of
from kwire.admin.dead_letters.originals import Gone, read_originals
from kwire.admin.dead_letters.redriven import Redriven, partition_offset, state_topic_of
from kwire.admin.dead_letters.topics import redriven_so_far
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError, Refused, UnknownTopic, error_name
from kwire.client.offsets import EARLIEST, list_offsets
from kwire.client.producing import DEFAULT_BATCH_BYTES, Producer, ProducerFenced, split_records
from kwire.client.topics import describe_topic_configs
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.delivery.partitioning import partition_of
from kwire.pipeline.replay.pace import Pace
from kwire.runtime.callbacks import ignore

COUNT_HEADER: Final = "__kwire.redriven.count"
"""The number of times that the record was sent again, in decimal. The header stays if the record fails again."""

MAX_LETTERS: Final = 500
"""The maximum number of letters in one transaction."""
MAX_BYTES: Final = 4 << 20
"""The size in bytes at which the letters that wait are sent."""
MAX_REPORTED: Final = 20
"""The maximum number of unsent letters that are reported one by one, for each reason."""
MAX_REASONS: Final = 1_000

ALREADY: Final = "sent by an earlier redrive"
NO_LETTER: Final = "no dead letter: it does not say from where it comes"

_OF_RECORDS: Final = {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.CORRUPT_MESSAGE,
}
_OF_TOPICS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.POLICY_VIOLATION,
}
_MAX_COUNT: Final = 10**9


class Outcome(Enum):
    SENT = "sent"
    SKIPPED = "skipped"
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class RedriveOptions:
    """`to`: a topic other than the origin. `again`: also sends letters a second time. `is_dry`: changes nothing."""

    to: str | None = None
    again: bool = False
    is_dry: bool = False
    limit: int | None = None
    """The maximum number of letters to send."""
    rate_per_s: float | None = None


@attrs.frozen
class NotSent:
    """A letter that was not sent, or a record in the dead-letter topic that is no letter."""

    at: TopicPartition
    offset: int
    origin: Origin | None
    outcome: Outcome
    reason: str


@attrs.define
class Report:
    """The result of a redrive. The key of `counts` is outcome, target topic and reason."""

    counts: Counter[tuple[Outcome, str | None, str | None]] = attrs.field(factory=Counter)
    not_sent: list[NotSent] = attrs.field(factory=list)
    """The first MAX_REPORTED of each reason, except those that an earlier redrive has sent."""
    is_cut: bool = False
    """True if the limit left letters out."""
    _reported: Counter[str] = attrs.field(factory=Counter)

    @property
    def is_whole(self) -> bool:
        """True if all letters are sent, now or before."""
        return all(
            outcome is Outcome.SENT or (outcome is Outcome.SKIPPED and reason in (ALREADY, NO_LETTER))
            for outcome, _, reason in self.counts
        )

    @property
    def sent(self) -> int:
        return sum(count for (outcome, _, _), count in self.counts.items() if outcome is Outcome.SENT)

    def add_sent(self, to: str) -> None:
        self._count(Outcome.SENT, to, None)

    def add_skipped(self, letter: Letter, reason: str) -> None:
        self._count(Outcome.SKIPPED, None, reason)
        if reason != ALREADY:
            self._report(NotSent(letter.at, letter.offset, letter.origin, Outcome.SKIPPED, reason))

    def add_other(self, at: TopicPartition, offset: int, *, is_wanted: bool) -> None:
        """Counts a record that is no letter. `is_wanted`: the user has given its offset."""
        outcome = Outcome.FAILED if is_wanted else Outcome.SKIPPED
        self._count(outcome, None, NO_LETTER)
        self._report(NotSent(at, offset, None, outcome, NO_LETTER))

    def add_failed(self, letter: Letter, to: str, reason: str) -> None:
        self._count(Outcome.FAILED, to, reason)
        self._report(NotSent(letter.at, letter.offset, letter.origin, Outcome.FAILED, reason))

    def _count(self, outcome: Outcome, to: str | None, reason: str | None) -> None:
        key = outcome, to, reason
        if key not in self.counts and len(self.counts) >= MAX_REASONS:
            key = outcome, None, None if outcome is Outcome.SENT else "other reasons"
        self.counts[key] += 1

    def _report(self, it: NotSent) -> None:
        if it.reason not in self._reported and len(self._reported) >= MAX_REASONS:
            return
        self._reported[it.reason] += 1
        if self._reported[it.reason] <= MAX_REPORTED:
            self.not_sent.append(it)


@attrs.frozen
class _Target:
    """A topic to which records go. `problem`: the reason why it accepts none."""

    name: str
    partitions: int = 0
    batch_bytes: int = DEFAULT_BATCH_BYTES
    problem: str | None = None


@attrs.frozen
class _Item:
    """A record that is to be sent."""

    letter: Letter
    to: TopicPartition
    record: Record


@attrs.define(eq=False)
class Redrive:
    """One redrive of a dead-letter topic. `report` has the result so far, also after an error."""

    cluster: Cluster
    topic: str
    selection: Selection
    options: RedriveOptions
    now_ms: Callable[[], int]
    progress: Callable[[int, int], None] = ignore
    """A callback with the number of offsets that were read, and their total."""
    report: Report = attrs.field(factory=Report)
    _producer: Producer | None = attrs.field(default=None, init=False)
    _state_topic: CompactedTopic = attrs.field(init=False)
    _redriven: Redriven = attrs.field(init=False)
    _stale: set[bytes] = attrs.field(factory=set, init=False)
    """The keys to delete from the topic that keeps which letters were sent."""
    _targets: dict[str, _Target] = attrs.field(factory=dict, init=False)

    def run(self) -> Report:
        """Raises UnknownTopic and other ClientErrors. Letters sent until then are in the report and the state topic."""
        topic_id = self.cluster.topic(self.topic).topic_id
        if self.options.to is not None:
            self.cluster.topic(self.options.to)
        spans = spans_of(self.cluster, self.topic, self.selection)
        self._state_topic = CompactedTopic(self.cluster, state_topic_of(self.topic))
        if self.options.is_dry:
            self._redriven = redriven_so_far(self.cluster, self.topic)
        else:
            self._state_topic.make()
            self._producer = Producer(self.cluster, transactional_id=f"kwire-redrive/{self.topic}")
            self._producer.init()
            self._redriven = Redriven.of(self.topic, topic_id, self._state_topic.all())
            self._stale = self._redriven.drop_stale(list_offsets(self.cluster, self.topic, EARLIEST))
        rate = self.options.rate_per_s
        pace = None if rate is None else Pace(rate, self.cluster.clock.monotonic())
        total, done, chosen = sum(it.stop - it.start for it in spans), 0, 0
        waiting: list[Letter] = []
        size = 0
        for span in spans:
            for record in read_span(self.cluster, span):
                self.progress(done + record.offset - span.start, total)
                letter = self._chosen(span.at, record)
                if letter is None:
                    continue
                if chosen == self.options.limit:
                    self.report.is_cut = True
                    break
                chosen += 1
                if pace is not None:
                    if (wait_s := pace.wait_s(self.cluster.clock.monotonic())) > 0:
                        self._send(waiting)
                        waiting, size = [], 0
                        wait_s = pace.wait_s(self.cluster.clock.monotonic())
                        self.cluster.clock.sleep(wait_s)
                    pace.went(self.cluster.clock.monotonic())
                waiting.append(letter)
                size += _size(letter)
                if len(waiting) >= MAX_LETTERS or size >= MAX_BYTES:
                    self._send(waiting)
                    waiting, size = [], 0
            if self.report.is_cut:
                break
            done += span.stop - span.start
        self._send(waiting)
        self.progress(total, total)
        return self.report

    def _chosen(self, at: TopicPartition, record: Record) -> Letter | None:
        letter = Letter.read(at, record)
        if letter is None:
            # Other filters are about letters: with them, such a record is not counted.
            if self.selection.is_everything or self.selection.offsets:
                self.report.add_other(at, record.offset, is_wanted=bool(self.selection.offsets))
            return None
        if not self.selection.matches(letter):
            return None
        if not self.options.again and partition_offset(at, letter.offset) in self._redriven:
            self.report.add_skipped(letter, ALREADY)
            return None
        return letter

    def _send(self, letters: Sequence[Letter]) -> None:
        """Sends the letters; in halves, if the records that they refer to do not fit into memory together."""
        wanted = {it.origin for it in letters if not it.is_copy}
        originals = read_originals(self.cluster, wanted)
        if len(originals) == len(wanted):
            self._write([item for it in letters if (item := self._item(it, originals)) is not None])
            return
        originals.clear()
        half = len(letters) // 2
        self._send(letters[:half])
        self._send(letters[half:])

    def _item(self, letter: Letter, originals: Mapping[Origin, Record | Gone]) -> _Item | None:
        """Returns None if the letter cannot be sent, and adds it to the report."""
        source: Letter | Record = letter
        timestamp_ms = letter.timestamp_ms
        if not letter.is_copy:
            original = originals[letter.origin]
            if isinstance(original, Gone):
                self.report.add_skipped(letter, original.value)
                return None
            source, timestamp_ms = original, original.timestamp
        target = self._target(self.options.to or letter.origin.at.topic)
        partition = letter.origin.at.partition
        problem = target.problem
        if problem is None and self.options.to is not None:
            key = source.key
            partition = partition % target.partitions if key is None else partition_of(key, target.partitions)
        elif problem is None and partition >= target.partitions:
            problem = f"the topic does not have partition {partition}"
        if problem is not None:
            self.report.add_failed(letter, target.name, problem)
            return None
        record = Record(0, timestamp_ms, source.key, source.value, _counted(source.headers))
        return _Item(letter, TopicPartition(target.name, partition), record)

    def _write(self, items: Sequence[_Item]) -> None:
        """Writes the records in one transaction; if one of them is refused, in several."""
        producer = self._producer
        if producer is None or not items:
            for it in items:
                self.report.add_sent(it.to.topic)
            return
        blocks = self._redriven.adding(partition_offset(it.letter.at, it.letter.offset) for it in items)
        failure: Refused | None = None
        try:
            with producer.transaction():
                try:
                    for batches in self._batches(items):
                        producer.produce(batches)
                except Refused as error:
                    if error.code in _OF_RECORDS or error.code in _OF_TOPICS:
                        failure = error
                    raise
                self._note(producer, blocks)
        except ProducerFenced as error:
            raise ClientError(
                f"this redrive of {quoted(self.topic)} has ended: another one has begun, or its transaction took too "
                f"long ({error_name(error.code)})"
            ) from None
        except Refused as error:
            if error is not failure:
                raise
            self._isolate(items, error)
            return
        self._redriven.added(blocks)
        self._stale.clear()
        for it in items:
            self.report.add_sent(it.to.topic)

    def _note(self, producer: Producer, blocks: Mapping[tuple[int, int], int]) -> None:
        values: dict[bytes, bytes | None] = {**dict.fromkeys(self._stale), **self._redriven.encode(blocks)}
        now_ms = self.now_ms()
        producer.write(self._state_topic.at, (Record(0, now_ms, key, value) for key, value in values.items()))

    def _batches(self, items: Sequence[_Item]) -> list[dict[TopicPartition, list[Record]]]:
        """Returns rounds with at most one batch for each partition, in the order of the letters."""
        records: dict[TopicPartition, list[Record]] = defaultdict(list)
        for it in items:
            records[it.to].append(it.record)
        pieces = [
            [(at, some) for some in split_records(its, self._target(at.topic).batch_bytes)]
            for at, its in records.items()
        ]
        return [dict(it for it in row if it is not None) for row in zip_longest(*pieces)]

    def _isolate(self, items: Sequence[_Item], error: Refused) -> None:
        """Finds the records that are refused, and sends the others."""
        topics = dict.fromkeys(it.to.topic for it in items)
        if error.code in _OF_TOPICS and len(topics) == 1:
            name = items[0].to.topic
            self._targets[name] = attrs.evolve(self._target(name), problem=error_name(error.code))
            for it in items:
                self.report.add_failed(it.letter, name, error_name(error.code))
        elif len(items) == 1:
            self.report.add_failed(items[0].letter, items[0].to.topic, error_name(error.code))
        elif error.code in _OF_TOPICS:
            for name in topics:
                self._write([it for it in items if it.to.topic == name])
        else:
            half = len(items) // 2
            self._write(items[:half])
            self._write(items[half:])

    def _target(self, name: str) -> _Target:
        if name not in self._targets:
            if len(self._targets) >= MAX_REASONS:
                self._targets.clear()
            self._targets[name] = self._describe_target(name)
        return self._targets[name]

    def _describe_target(self, name: str) -> _Target:
        try:
            partitions = len(self.cluster.topic(name).leaders)
            most = int(describe_topic_configs(self.cluster, [name])[name].get("max.message.bytes") or 0)
        except UnknownTopic:
            return _Target(name, problem="the topic does not exist")
        except Refused as error:
            if error.may_pass:
                raise
            return _Target(name, problem=error_name(error.code))
        # A small batch has room for its header, too.
        return _Target(name, partitions, min(DEFAULT_BATCH_BYTES, max(most - 100, 1)) if most else DEFAULT_BATCH_BYTES)


def _counted(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    before = [value for name, value in headers if name == COUNT_HEADER]
    count = int(before[-1]) if before and before[-1] and before[-1].isdigit() and len(before[-1]) <= 9 else 0
    others = [it for it in headers if it[0] != COUNT_HEADER]
    return [*others, (COUNT_HEADER, b"%d" % min(count + 1, _MAX_COUNT - 1))]


def _size(letter: Letter) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    return len(letter.key or b"") + len(letter.value or b"") + headers
