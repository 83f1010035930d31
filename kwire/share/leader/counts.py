"""The counters of a broker's share partitions since its start.

Kafka's `ShareGroupMetrics` and `SharePartitionMetrics`, of all groups together. A share partition ends with its leader
epoch or its last session, so its counters are kept here. `kwire.metrics` reads them.
"""

from __future__ import annotations

import attrs

from kwire.coordinators.durations import Durations
from kwire.share.leader.states import AcknowledgeType


@attrs.define(eq=False)
class SharingCounts:
    fetches: int = 0
    """The number of ShareFetch requests."""
    failed_fetches: int = 0
    """The number of ShareFetch requests with an error of their own or of a partition."""
    acknowledges: int = 0
    """The number of requests with acknowledgements: ShareAcknowledge, and ShareFetch."""
    failed_acknowledges: int = 0
    acknowledged: dict[int, int] = attrs.field(factory=lambda: dict.fromkeys(map(int, AcknowledgeType), 0))
    """Acknowledgement type -> the number of acknowledged records that the member held."""
    timed_out: int = 0
    """The number of records whose lock has timed out."""
    reads: Durations = attrs.field(factory=Durations)
    """The reads of states from the share coordinator, for new share partitions."""
    failed_reads: int = 0
    writes: Durations = attrs.field(factory=Durations)
    """The writes of changes to the share coordinator."""
    failed_writes: int = 0
    dead_letters: int = 0
    """The number of records copied to a dead-letter topic."""
    lost_dead_letters: int = 0
    """The number of records archived without a copy, because the topic cannot be used."""
    failed_copies: int = 0
    """The number of failed attempts to copy, which are repeated."""
