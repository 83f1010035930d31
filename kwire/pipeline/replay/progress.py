"""A replay's progress, from its tasks' positions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kwire.pipeline.replay.pinned import position_key
from kwire.pipeline.replay.writing import Position
from kwire.pipeline.report import Step


@attrs.define(eq=False)
class Progress:
    """The progress of one generation. `ends` are the offsets after the last of each source partition, if known."""

    name: str
    generation: int
    ends: Mapping[int, int]
    positions: dict[int, Position] = attrs.field(factory=dict)
    """The positions by target partition."""
    _reported: int = 0

    def take(self, values: Mapping[bytes, bytes | None]) -> None:
        """Takes the values of the state topic, all or the new ones; other values are ignored."""
        prefix = position_key(self.name, self.generation, None)
        for key, value in values.items():
            if value is not None and key.startswith(prefix):
                target, position = int(key.removeprefix(prefix)), Position.from_json(value)
                # A later read may be older: one reader waits for open transactions, the other does not.
                if position.records >= self.positions.get(target, Position()).records:
                    self.positions[target] = position

    @property
    def records(self) -> int:
        """The number of the replay's records that the target has."""
        return sum(it.records for it in self.positions.values())

    def reached(self) -> dict[int, int]:
        """Returns the lowest next offset of each source partition, over all target partitions."""
        found: dict[int, int] = {}
        for position in self.positions.values():
            for partition, offset in position.next.items():
                found[partition] = min(offset, found.get(partition, offset))
        return found

    def replayed(self, partitions: int) -> dict[int, int]:
        """Returns the offset before which each source partition is certainly replayed, into all target partitions.

        A source partition is left out if a target partition has no records of it yet: some may follow.
        """
        everywhere = [it.next for it in self.positions.values()] if len(self.positions) == partitions else []
        reached = self.reached()
        return {it: at for it, at in reached.items() if everywhere and all(it in of for of in everywhere)}

    def begin(self) -> None:
        """Starts the count of this run: records written before are not reported."""
        self._reported = self.records

    @property
    def has_news(self) -> bool:
        return self.records > self._reported

    def step(self, took_s: float) -> Step:
        """The progress since the last step."""
        records, self._reported = self.records - self._reported, self.records
        reached = self.reached()
        lag = {it: max(0, end - reached[it]) for it, end in self.ends.items() if it in reached}
        return Step(name=self.name, records=records, errors=0, took_s=took_s, offsets=reached, lag=lag)

    def last_step(self, took_s: float) -> Step:
        """Returns the step at the end, with all offsets at their ends and no lag."""
        return attrs.evolve(self.step(took_s), offsets=dict(self.ends), lag=dict.fromkeys(self.ends, 0))
