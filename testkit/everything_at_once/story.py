"""The records that must be in one partition of a topic that is compacted, trimmed, aged, deleted and created again.

The story has no client and no broker: tests pass it numbers. A record's value has a mark (`sigkill/ledger.py`) that
names the story, which is this partition of this topic, and the record's number among those that were sent. The promises
of the story depend on the configurations that the topic has ever had:

* by default: every record from the log start on is there, and the log start is that of the last DeleteRecords
* `may_age`: retention may have taken records, but only the oldest, without a gap
* `may_compact`: records may be missing, but of each key neither the latest, nor, if that was a tombstone, the tombstone
  while something older is there

Where a log starts is written down by the clock: a SIGKILL may take back what was deleted a moment before. When a log is
seen to start there, or above, CHECKPOINTED_WITHIN_S later, it is written down, and no later kill takes it back.

In each: what was acknowledged at an offset stands there or nowhere, no record comes twice or out of order, and none of
a topic that had the same name before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import attrs

from testkit.kills.group_ledger import Spot
from testkit.kills.sigkill.ledger import Mark

Complain = Callable[[str], None]

CHECKPOINTED_WITHIN_S = 20.0
"""Checkpoints are written every three seconds at least, but for those on a disk that is full just then; and a kill may
come before that, and the start after it take some seconds."""


class Seen(NamedTuple):
    """A record that a consumer was given."""

    offset: int
    key: bytes
    mark: Mark
    is_tombstone: bool


class Outlived(NamedTuple):
    """A record's key, and the offset of the tombstone that is gone although the record is not."""

    key: bytes
    tombstone: int


class Sent(NamedTuple):
    sequence: int
    key: bytes
    is_tombstone: bool


@attrs.frozen
class Doubts:
    """The records, by offset, that a reading lacks, and those that it should not have.

    One reading proves nothing. It begins at the log start, and a SIGKILL may take that back before the reading ends. It
    may pass a record before a cleaning and the tombstone's offset after the next one, if it takes longer than
    delete.retention.ms. Two readings that have a doubt in common prove it.
    """

    lacking: dict[int, Sent]
    outlived: dict[int, Outlived]

    def __bool__(self) -> bool:
        return bool(self.lacking or self.outlived)

    def shared_with(self, later: Doubts) -> Doubts:
        """Returns those that `later`, which was begun after this reading had ended, has too."""
        return Doubts(
            {offset: it for offset, it in later.lacking.items() if offset in self.lacking},
            {offset: it for offset, it in later.outlived.items() if offset in self.outlived},
        )


@attrs.define(eq=False)
class Story:
    """The story of one partition; `number` is in the marks of its records."""

    spot: Spot
    number: int
    complain: Complain
    may_age: bool = False
    may_compact: bool = False
    sent: int = 0
    failed: int = 0
    """The number of records that their producer gave up: they may be in the log or not."""
    acknowledged: dict[int, Sent] = attrs.field(factory=dict)
    """The acknowledged records by offset."""
    highest_end: int = 0
    """The log cannot end below."""
    trimmed_in_doubt: int = 0
    """The highest possible start of the log, unless it may age: DeleteRecords was requested up to there."""
    _tombstones: dict[bytes, int] = attrs.field(factory=dict)
    """The last one sent of each key, by its sequence."""
    _starts: list[tuple[float, int]] = attrs.field(factory=list)
    """Times (s) at which the log's start was seen, with that start. A kill may still take it back."""
    _written_start: int = 0
    """The lower bound of the log's start that no kill undoes."""

    def send(self, key: bytes, *, is_tombstone: bool) -> Sent:
        sent = Sent(self.sent, key, is_tombstone)
        self.sent += 1
        if is_tombstone:
            self._tombstones[key] = sent.sequence
        return sent

    def mark(self, sent: Sent) -> Mark:
        return Mark(self.number, sent.sequence)

    def acknowledge(self, sent: Sent, offset: int) -> None:
        known = self.acknowledged.setdefault(offset, sent)
        if known != sent:
            self._complain(f"{sent} was acknowledged at {offset}, where {known} had been")
        self.highest_end = max(self.highest_end, offset + 1)

    def begin_trim(self, offset: int) -> None:
        """Notes that DeleteRecords is about to be sent."""
        self.trimmed_in_doubt = max(self.trimmed_in_doubt, offset)

    def trim(self, offset: int, low_watermark: int, now_s: float) -> None:
        """It was answered."""
        if low_watermark < offset:
            self._complain(f"records before {offset} were deleted, and the log begins at {low_watermark}")
        self._starts.append((now_s, low_watermark))

    def check_bounds(self, start: int, end: int, now_s: float) -> None:
        """Checks the log's first and last offset in the broker's response."""
        if end < self.highest_end:
            self._complain(f"ends at {end}, but clients know of records up to {self.highest_end}")
        self.check_start(start, now_s)
        if start > self.trimmed_in_doubt and not self.may_age:
            self._complain(f"begins at {start}, but only records before {self.trimmed_in_doubt} were deleted")
        if start > end:
            self._complain(f"begins at {start} and ends at {end}")
        self.highest_end = max(self.highest_end, end)

    def check_start(self, start: int, now_s: float) -> None:
        """Checks the log's first offset in the broker's response, also before each DeleteRecords."""
        if start < self._written_start:
            self._complain(f"begins at {start}, but began at {self._written_start} for {CHECKPOINTED_WITHIN_S} s")
        left = [it for it in self._starts if it[1] <= start]  # a kill has taken back the others
        written_before_s = now_s - CHECKPOINTED_WITHIN_S
        self._written_start = max([self._written_start, *(it for since_s, it in left if since_s <= written_before_s)])
        self._starts = [*((since_s, it) for since_s, it in left if it > self._written_start), (now_s, start)]

    def check_records(self, seen: Iterable[Seen], start: int, is_older: _IsOlder) -> dict[int, Seen]:
        """Checks each record of a reading from the start to the end. Returns them by offset.

        `start` is the log start when it ended; the mark of another story is valid if `is_older` returns True. Call
        `doubts` with the result.
        """
        found: dict[int, Seen] = {}
        last: Seen | None = None
        before = -1
        for it in seen:
            has_aged = self.may_age and before < it.offset <= start
            if before >= 0 and it.offset != before + 1 and not (self.may_compact or has_aged):
                self._complain(f"has offset {it.offset} behind {before}")
            before = it.offset
            if it.mark.producer != self.number:
                if not is_older(it.mark):
                    self._complain(f"has at {it.offset} {it.mark} of another topic")
                continue
            if last is not None and it.mark.sequence <= last.mark.sequence:
                self._complain(f"has {it.mark} at {it.offset} behind {last.mark} at {last.offset}")
            if it.mark.sequence >= self.sent:
                self._complain(f"has {it.mark} at {it.offset}, which was never sent")
            at = self.acknowledged.get(it.offset)
            if at is not None and at != Sent(it.mark.sequence, it.key, it.is_tombstone):
                self._complain(f"has {it} at {it.offset}, where {at} was acknowledged")
            found[it.offset] = last = it
        return found

    def doubts(self, found: dict[int, Seen], known: dict[int, Sent], start: int) -> Doubts:
        """Returns the doubts about a reading. `known` are the acknowledged records when it began."""
        if not self.may_compact:
            return Doubts({at: sent for at, sent in known.items() if at >= start and at not in found}, {})
        doubts = Doubts({}, {})
        of_key = _offsets_by_key(found)
        for key, offset in _latest(known).items():
            there = of_key.get(key, [])
            if offset < start or any(it >= offset for it in there):
                continue
            if known[offset].is_tombstone:
                doubts.outlived.update((it, Outlived(key, offset)) for it in there)
            elif self._tombstones.get(key, -1) < known[offset].sequence:
                # Else a later tombstone may have taken the record and gone itself, before its sender took note of it.
                doubts.lacking[offset] = known[offset]
        return doubts

    def complain_of(self, twice: Doubts) -> None:
        """`twice` is what two readings share."""
        for offset, sent in twice.lacking.items():
            what = f"the latest record of {sent.key!r}" if self.may_compact else "an acknowledged record"
            self._complain(f"lacks {what}, {sent} at {offset}")
        for offset, (key, tombstone) in twice.outlived.items():
            self._complain(f"lacks the tombstone of {key!r} at {tombstone}, and has what it deleted at {offset}")

    def _complain(self, what: str) -> None:
        self.complain(f"{self.spot[0]}-{self.spot[1]} ({self.number}) {what}")


_IsOlder = Callable[[Mark], bool]


def _latest(known: dict[int, Sent]) -> dict[bytes, int]:
    """The offset of the last record of each key."""
    latest: dict[bytes, int] = {}
    for offset, sent in known.items():
        latest[sent.key] = max(latest.get(sent.key, -1), offset)
    return latest


def _offsets_by_key(found: dict[int, Seen]) -> dict[bytes, list[int]]:
    of_key: dict[bytes, list[int]] = {}
    for offset, it in found.items():
        of_key.setdefault(it.key, []).append(offset)
    return of_key
