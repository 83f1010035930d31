"""The start offset of a share group in a partition where none was set: share.auto.offset.reset (KIP-932)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kwire.replicas.partition import Partition

_DURATION: Final = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def duration_ms(reset: str) -> int | None:
    """Returns the duration of by_duration:, in milliseconds; None for all other values."""
    match = _DURATION.fullmatch(reset)
    if match is None:
        return None
    return sum(int(float(match[unit] or 0) * unit_ms) for unit, unit_ms in _UNITS_MS.items())


def first_start_offset(partition: Partition, reset: str, *, now_ms: int) -> int:
    """Returns the offset from which a group begins. `now_ms` is wall clock time. Raises KafkaError as `Partition.read`.

    latest is the high watermark, whatever the isolation level. by_duration is the first record that is not older, or
    latest if all are. (Kafka then refuses to initialize the share partition until there is such a record.)
    """
    if reset == "earliest":
        return partition.log_start_offset
    end = partition.high_watermark
    duration = duration_ms(reset)
    if duration is None:
        return end
    found = partition.find_time(now_ms - duration, end)
    return end if found is None else found.offset
