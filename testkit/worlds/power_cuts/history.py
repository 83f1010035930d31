"""The events of one partition, and the promises that follow from them at any moment.

Every operation of a trace is noted with the moments at which it began and was answered; a moment is a number of changes
of the disk. An operation without an answer may have happened or not. An answered one survives the death of the process;
one that a flush covered, or a restart found on the medium, survives a power cut too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import attrs

NOT_ANSWERED = math.inf


class Batch(NamedTuple):
    """A batch as it is in the log; `end` is the offset after its last."""

    base: int
    end: int
    data: bytes


@attrs.define(eq=False)
class Event:
    began: int
    answered: float = attrs.field(default=NOT_ANSWERED, init=False)


@attrs.define(eq=False)
class Sent(Event):
    batch: Batch


@attrs.define(eq=False)
class Flushed(Event):
    end_offset: int


@attrs.define(eq=False)
class Truncated(Event):
    """A truncation to `offset`; `fully`: the log is empty and continues there."""

    offset: int
    fully: bool = False


@attrs.define(eq=False)
class StartMoved(Event):
    """The log start has moved, for any reason, to `offset` at most."""

    offset: int


@attrs.define(eq=False)
class StartStored(Event):
    """The checkpoint has the log start."""

    offset: int


@attrs.define(eq=False)
class Cleaned(Event):
    """Records below `end_offset` may have been compacted away."""

    end_offset: int


@attrs.define(eq=False)
class Created(Event):
    pass


@attrs.define(eq=False)
class Deleted(Event):
    pass


@attrs.define(eq=False)
class Found(Event):
    """A restart found these; `on_medium`: after a power cut, so that all of it is."""

    batches: list[Batch]
    start: int
    on_medium: bool


@attrs.define
class Known:
    """The promise at a moment: the log is a beginning of one of the timelines, and not too short."""

    timelines: list[list[Batch]] = attrs.field(factory=lambda: [[]])
    answered_end: int = 0
    durable_end: int = 0
    lowest_start: int = 0
    highest_start: int = 0
    cleaned_end: int = 0
    """Below it compaction may have taken records."""
    exists: bool = False
    durably_exists: bool = False
    may_be_gone: bool = False
    may_return: list[list[Batch]] = attrs.field(factory=list)
    """The batches of a truncation during which the process died: until a flush a power cut may bring them back."""

    def least_end(self, *, lost_power: bool) -> int:
        return self.durable_end if lost_power else self.answered_end

    def must_exist(self, *, lost_power: bool) -> bool:
        return (self.durably_exists if lost_power else self.exists) and not self.may_be_gone


@attrs.define(eq=False)
class PartitionHistory:
    """`before`: what was known when this life began."""

    before: Known = attrs.field(factory=Known)
    events: list[Event] = attrs.field(factory=list)

    def at(self, position: int) -> Known:
        known = attrs.evolve(self.before, timelines=[list(timeline) for timeline in self.before.timelines])
        for event in self.events:
            if event.began <= position:
                _take_in(known, event, answered=event.answered <= position)
        return known


def _take_in(known: Known, event: Event, *, answered: bool) -> None:
    match event:
        case Sent():
            # What goes before it in the log is settled by now: an append takes place in one log.
            timeline = [batch for batch in known.timelines[-1] if batch.end <= event.batch.base]
            known.timelines = [[*timeline, event.batch]]
            if answered:
                known.answered_end = event.batch.end
        case Flushed() if answered:
            known.durable_end = max(known.durable_end, event.end_offset)
            known.durably_exists = True
            known.may_return = []
        case Truncated():
            shorter = [] if event.fully else [batch for batch in known.timelines[-1] if batch.end <= event.offset]
            known.timelines = [shorter] if answered else [*known.timelines, shorter]
            end = shorter[-1].end if shorter else 0
            known.answered_end, known.durable_end = min(known.answered_end, end), min(known.durable_end, end)
            known.lowest_start = min(known.lowest_start, event.offset)
            if event.fully:
                known.highest_start = max(known.highest_start, event.offset)
            if event.fully and answered:
                known.lowest_start = known.highest_start = event.offset
        case StartMoved():
            known.highest_start = max(known.highest_start, event.offset)
        case Cleaned():
            known.cleaned_end = max(known.cleaned_end, event.end_offset)
        case StartStored() if answered:
            known.lowest_start = max(known.lowest_start, event.offset)
        case Created():
            if answered:
                known.exists, known.may_be_gone = True, False
            known.timelines, known.answered_end, known.durable_end = [[]], 0, 0
            known.lowest_start = known.highest_start = 0
            known.durably_exists = False
        case Deleted():
            known.may_be_gone = True
        case Found() if answered:
            if not event.on_medium and len(known.timelines) > 1:
                known.may_return = known.timelines
            known.timelines = [event.batches]
            end = event.batches[-1].end if event.batches else 0
            known.answered_end, known.exists, known.may_be_gone = end, True, False
            known.highest_start = max(known.highest_start, event.start)
            if event.on_medium:
                known.durable_end = max(known.durable_end, end)
                known.durably_exists = True
        case _:
            pass
