"""What has happened to the share partitions of a broker since its start, as numbers.

Kafka's `ShareGroupMetrics` and `SharePartitionMetrics`, of all groups together. A share partition ends with its leader
epoch or its last session, so what happened to it is counted here. `kwire.metrics` reads.
"""

from __future__ import annotations

import attrs

from kwire.coordinators.durations import Durations
from kwire.share.leader.states import AcknowledgeType


@attrs.define(eq=False)
class SharingCounts:
    fetches: int = 0
    """ShareFetch requests."""
    failed_fetches: int = 0
    """Of these, with an error of their own or of a partition."""
    acknowledges: int = 0
    """Requests that acknowledge something: ShareAcknowledge, and ShareFetch."""
    failed_acknowledges: int = 0
    acknowledged: dict[int, int] = attrs.field(factory=lambda: dict.fromkeys(map(int, AcknowledgeType), 0))
    """Acknowledgement type -> records, of those that the member had."""
    timed_out: int = 0
    """Records whose lock has ended by its time."""
    reads: Durations = attrs.field(factory=Durations)
    """States that were asked of the share coordinator, for a new share partition."""
    failed_reads: int = 0
    writes: Durations = attrs.field(factory=Durations)
    """Changes that were sent to the share coordinator."""
    failed_writes: int = 0
    dead_letters: int = 0
    """Records that are in a dead-letter topic."""
    lost_dead_letters: int = 0
    """Records that were archived without one, because the topic cannot be used."""
    failed_copies: int = 0
    """Attempts to copy that failed and are repeated."""
