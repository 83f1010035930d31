"""What has happened to the groups of a broker since its start, as numbers. Kafka's `GroupCoordinatorMetricsShard`.

One object for all shards of the broker: a shard goes with its partition, and what it has counted must not go with it.
The machines add where the thing happens, and `kwire.metrics` reads.
"""

from __future__ import annotations

import attrs

from kwire.groups.group import GroupType


@attrs.define(eq=False)
class GroupCounts:
    offset_commits: int = 0
    """Offsets that were accepted, also as part of a transaction."""
    offset_expirations: int = 0
    offset_deletions: int = 0
    """By OffsetDelete; not those that went with their group or topic."""
    rebalances: dict[GroupType, int] = attrs.field(factory=lambda: dict.fromkeys(GroupType, 0))
    """Of classic groups: assignments that were recorded. Of the others: group epochs that began."""
