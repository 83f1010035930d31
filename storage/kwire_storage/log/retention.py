"""Retention by age, by size and by log start: the number of old segments to delete, and the time.

This module only counts. Segments are deleted from the oldest on, so the rest is always a contiguous log
(`Log.apply_retention`).
"""

from __future__ import annotations

from kwire_storage.config import NEVER, LogConfig
from kwire_storage.log.log_segments import LogSegments
from kwire_storage.log.segment import Segment


def deletable(segments: LogSegments, config: LogConfig, log_start_offset: int, high_watermark: int, now_ms: int) -> int:
    """The number of segments, from the oldest on, that the settings delete; those not replicated stay.

    All of them, if the active one is not empty and has expired as well.
    """
    too_much = -1
    if config.deletes and config.retention_bytes >= 0:
        too_much = segments.size_in_bytes - config.retention_bytes
    count = 0
    for segment, end_offset in segments.from_offset(segments.bases[0]):
        is_active = segment is segments.active
        if end_offset > high_watermark or (is_active and not segment.size):
            break
        below_start = not is_active and end_offset <= log_start_offset
        expired = config.deletes and 0 <= config.retention_ms < now_ms - _newest_ms(segment)
        if not (below_start or expired or too_much >= segment.size):
            break
        too_much -= segment.size
        count += 1
    return count


def expires_at_ms(segments: LogSegments, config: LogConfig) -> int:
    """The time at which the oldest segment expires by age; NEVER if it does not."""
    oldest = segments[0]
    if not config.deletes or config.retention_ms < 0 or (oldest is segments.active and not oldest.size):
        return NEVER
    return _newest_ms(oldest) + config.retention_ms + 1


def _newest_ms(segment: Segment) -> int:
    newest = segment.largest_timestamp
    return newest if newest >= 0 else segment.created_ms
