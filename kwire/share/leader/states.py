"""The states of a record in flight, the types of an acknowledgement, and the limits of a share group."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import attrs

from kwire.backoff import Backoff


class RecordState(IntEnum):
    """The values in the records of `__share_group_state` (Kafka's RecordState). ARCHIVING is from KIP-1191."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """It has failed, and is not yet in the dead-letter topic."""
    ARCHIVED = 4


AVAILABLE: Final = RecordState.AVAILABLE
ACQUIRED: Final = RecordState.ACQUIRED
ACKNOWLEDGED: Final = RecordState.ACKNOWLEDGED
ARCHIVING: Final = RecordState.ARCHIVING
ARCHIVED: Final = RecordState.ARCHIVED


class AcknowledgeType(IntEnum):
    """A consumer's acknowledgement of a record (KIP-932); RENEW is from KIP-1222."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """The consumer keeps it, under a new lock."""


class Cause(IntEnum):
    """The cause for which a record goes to the dead-letter topic."""

    REJECTED = 0
    DELIVERY_COUNT = 1
    """It was delivered as often as the limit allows."""


class AcquireMode(IntEnum):
    """The acquire mode of ShareFetch v2 and later (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole batches; the maximum number of records may be exceeded within one."""
    RECORD_LIMIT = 1
    """Never more than the maximum number of records."""


_LEAST_THROTTLED: Final = 2


@attrs.frozen
class ShareLimits:
    """A share group's limits. They may change at any time, and apply from then on."""

    max_in_flight_records: int = 2000
    """group.share.partition.max.record.locks."""
    delivery_count_limit: int = 5
    """group.share.delivery.count.limit."""
    lock_duration_ms: int = 30_000
    """group.share.record.lock.duration.ms."""
    release_delay_ms: int = 0
    """kwire.share.release.delay.ms: the delay of a record that was released once. It doubles with each delivery."""
    max_release_delay_ms: int = 0
    """The maximum of the growing delay. A delay that is longer from the start does not grow."""
    has_dead_letters: bool = False
    """True if the group has a dead-letter topic (KIP-1191)."""

    @property
    def throttled_from(self) -> int:
        """The delivery count from which fewer records are acquired at once, to isolate a harmful one."""
        return max(_LEAST_THROTTLED, -(-self.delivery_count_limit // 2))

    def is_last_delivery(self, delivery_count: int) -> bool:
        """True if a record with this count is delivered alone, because it is its last delivery."""
        return self.delivery_count_limit > _LEAST_THROTTLED and delivery_count == self.delivery_count_limit - 1

    def release_delay(self, delivery_count: int) -> int:
        """Returns the delay in milliseconds of a record with this delivery count."""
        if self.release_delay_ms <= 0:
            return 0
        longest = max(self.max_release_delay_ms, self.release_delay_ms)
        return Backoff(self.release_delay_ms, longest).after(max(delivery_count, 1))
