"""The limits of a segment: its size, its age, the space in its indexes (Kafka's `LogSegment.shouldRoll`)."""

from __future__ import annotations

import attrs

from kwire_storage.config import NEVER, LogConfig
from kwire_storage.log.environment import Draw
from kwire_storage.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kwire_storage.log.segment import Segment


@attrs.define(eq=False)
class RollPolicy:
    """Decides when to roll; rolling itself is `Log.roll`. Times are in ms.

    `jitter_ms` is subtracted from `segment.ms`, so that logs created together do not roll together. It is drawn
    for each segment.
    """

    config: LogConfig
    _draw: Draw
    jitter_ms: int = 0

    def draw_jitter(self) -> None:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self.jitter_ms = self._draw(bound) if bound else 0

    def must_roll(self, segment: Segment, last_offset: int, size: int, timestamp_ms: int, now_ms: int) -> bool:
        """Returns True if a batch of `size` bytes, ending at `last_offset`, goes to a new segment.

        If time and indexes have room for later batches, `segment.fits_until_ms` and `segment.index_room` are set.
        """
        config = self.config
        file_size = segment.file.size
        if file_size > 0 and (
            file_size + size > config.segment_bytes or _age_ms(segment, now_ms, timestamp_ms) > self._full_after_ms
        ):
            return True
        room = min(
            config.segment_index_bytes // OFFSET_ENTRY_BYTES - len(segment.index.offsets),
            config.segment_index_bytes // TIME_ENTRY_BYTES - 1 - len(segment.time_index.offsets),
        )
        if room <= 0 or last_offset > segment.fits_until_offset:
            return True
        if segment.rolling_timestamp is not None and segment.rolling_timestamp >= 0:
            segment.index_room = room
            segment.fits_until_ms = segment.rolling_timestamp + self._full_after_ms
        return False

    def is_due(self, segment: Segment, now_ms: int) -> bool:
        """Returns True if the segment is full by its age, and not empty."""
        return bool(segment.size) and _age_ms(segment, now_ms, now_ms) > self._full_after_ms

    def due_at_ms(self, segment: Segment, now_ms: int) -> int:
        """The time from which `is_due` is True, if nothing is appended until then."""
        if not segment.size:
            return NEVER
        return now_ms + max(self._full_after_ms - _age_ms(segment, now_ms, now_ms) + 1, 0)

    @property
    def _full_after_ms(self) -> int:
        return self.config.max_segment_ms - self.jitter_ms


def _age_ms(segment: Segment, now_ms: int, timestamp_ms: int) -> int:
    """The age of the segment: by its records' timestamps if they have any, otherwise by the clock."""
    filled_since = segment.first_timestamp_ms
    if filled_since >= 0 and timestamp_ms >= 0:
        return timestamp_ms - filled_since
    return now_ms - segment.created_ms
