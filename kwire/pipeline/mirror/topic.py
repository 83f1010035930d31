"""One mirrored topic, as the driver has it: the source's state, and each partition's position and offset map. Pure.

Positions are declared: they are written to the state topic first, and become part of the topic after that. So after a
failure in between the topic has what another run would find.

    undeclared -> (the driver writes the position) -> declared
    ranges     -> (tasks copy the records)         -> copied
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from kwire.client.cluster import TopicPartition
from kwire.pipeline.mirror.offsets import Run, renewed, superfluous, translated
from kwire.pipeline.mirror.origins import Origin
from kwire.pipeline.mirror.state import Position, State
from kwire.pipeline.mirror.writing import AnotherMirror, Copied, OffsetRange, Writing
from kwire.pipeline.report import Step
from kwire.pipeline.tables import position as tables
from kwire.pipeline.topic_state import TopicState


@attrs.frozen
class MirroredPartition:
    """A mirrored partition's position and its offset map."""

    position: Position
    runs: Sequence[Run]

    def translate(self, source: int) -> int:
        """Returns the target offset for a consumer at offset `source`. Exact or earlier, never later."""
        return translated(self.runs, self.position.target_begin, min(source, self.position.next))


@attrs.frozen
class Terms:
    """The terms on which a topic's records are written. They may change while the mirror runs.

    origins: the origins to declare.
    batch_bytes: the largest batch of records that the target takes.
    """

    origins: frozenset[Origin]
    batch_bytes: int


@attrs.define(eq=False, kw_only=True)
class MirroredTopic:
    """All that a run has of one topic. Its owner is the driver."""

    name: str
    target: str
    """The topic's name at the target."""
    target_id: str
    state: TopicState
    terms: Terms
    partitions: dict[int, MirroredPartition] = attrs.field(factory=dict)

    @property
    def offsets(self) -> dict[int, int]:
        """The next offset of each partition."""
        return {number: it.position.next for number, it in self.partitions.items()}

    def replace_state(self, state: TopicState, holder: tables.Holder) -> None:
        """Takes the source's newer state. Raises PipelineError if it is the state of another topic of that name."""
        known = tables.Position(state.cluster_id, self.name, self.state.topic_id, self.offsets)
        tables.same_topic(known, state, holder)
        self.state = state

    def check_alone(self, stored: State, writing: Writing) -> None:
        """Raises AnotherMirror if another run has moved a position since this run has had it."""
        for it in self.partitions.values():
            at = it.position.at
            found = stored.positions.get(at)
            if found is not None and found.run_id not in (writing.run_id, it.position.run_id):
                raise AnotherMirror(writing.name, at)

    def undeclared(
        self, offsets: Mapping[int, int], target_ends: Mapping[int, int], writing: Writing
    ) -> list[Position]:
        """The positions to declare before these partitions are read from `offsets` on.

        target_ends: the ends of the target's partitions; only those of new partitions are used.
        """
        found = []
        for number, offset in sorted(offsets.items()):
            known = self.partitions.get(number)
            if known is None:
                found.append(self._first_position(number, offset, target_ends[number], writing))
                continue
            position = attrs.evolve(known.position, next=offset, origins=self.terms.origins)
            if position != known.position:
                found.append(position)
        return found

    def declared(self, position: Position) -> None:
        """Takes a position that was declared."""
        number = position.at.partition
        known = self.partitions.get(number)
        self.partitions[number] = MirroredPartition(position, [] if known is None else known.runs)

    def ranges(self, ends: Mapping[int, int]) -> dict[TopicPartition, OffsetRange]:
        """The part of a batch in each partition: from its position to the batch's end. Without empty ones."""
        return {
            it.position.at: OffsetRange(
                position=it.position,
                until=until,
                dropped=superfluous(it.runs, self.state.starts[number]),
                batch_bytes=self.terms.batch_bytes,
            )
            for number, until in ends.items()
            if until > (it := self.partitions[number]).position.next
        }

    def copied(self, copied: Copied, retained_runs: Sequence[Run] | None = None) -> None:
        """Takes a task's result.

        retained_runs: all runs in the state topic. Required if the task was further: it does not report earlier ones.
        """
        assert retained_runs is not None or not copied.was_further
        number = copied.position.at.partition
        runs = self.partitions[number].runs if retained_runs is None else retained_runs
        dropped = {it.source for it in superfluous(runs, self.state.starts.get(number, 0))}
        left = [it for it in runs if it.source not in dropped]
        self.partitions[number] = MirroredPartition(copied.position, renewed(left, copied.runs))

    def step(self, records: int, took_s: float) -> Step:
        """The report of a batch with so many records."""
        offsets, ends = self.offsets, self.state.ends
        lag = {number: max(0, ends.get(number, at) - at) for number, at in offsets.items()}
        return Step(name=self.name, records=records, errors=0, took_s=took_s, offsets=offsets, lag=lag)

    def _first_position(self, number: int, offset: int, target_end: int, writing: Writing) -> Position:
        return Position(
            at=TopicPartition(self.name, number),
            next=offset,
            target_topic=self.target,
            target_begin=target_end,
            cluster_id=self.state.cluster_id,
            topic_id=self.state.topic_id,
            target_topic_id=self.target_id,
            origins=self.terms.origins,
            run_id=writing.run_id,
        )
