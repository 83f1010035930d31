"""The counters of a broker's groups since its start (Kafka's `GroupCoordinatorMetricsShard`).

All shards of the broker share one object, because a shard is removed with its partition, but its counts must stay. The
machines increment the counters, and `kwire.metrics` reads them.
"""

from __future__ import annotations

import attrs

from kwire.groups.group import GroupType


@attrs.define(eq=False)
class GroupCounts:
    offset_commits: int = 0
    """The number of accepted offsets, also as part of a transaction."""
    offset_expirations: int = 0
    offset_deletions: int = 0
    """The number of offsets deleted by OffsetDelete, without those that were removed with their group or topic."""
    rebalances: dict[GroupType, int] = attrs.field(factory=lambda: dict.fromkeys(GroupType, 0))
    """Classic groups: the number of recorded assignments. Other types: the number of group epochs."""
