"""The range assignor: a member gets a range of the partitions of each topic.

The members of a topic are in a fixed order: static ones first, by `group.instance.id`, then the others by member id.
The partitions are cut into as many ranges, whose sizes differ by at most one, the larger ones first. Members that
subscribe alike so get the same ranges of all topics that have as many partitions, which a join of them needs.

Kafka's `RangeAssignor` (4.3.1) gives the same assignment, partition by partition. The present assignment does not
matter: the order alone decides. A static member that comes back under a new member id keeps its position, and so its
partitions. Racks do not matter either. To take a member out of the order because of its rack would move the ranges of
all members behind it.
"""

from __future__ import annotations

from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import Assignment, GroupSpec, Partitions
from kwire.groups.assignors.audiences import audiences_of


class RangeAssignor:
    name = "range"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        member_ids = _in_order(group)
        parts: list[dict[Uuid, Partitions]] = [{} for _ in member_ids]
        for audience in audiences_of(group, member_ids):
            ranges: dict[int, list[Partitions]] = {}
            for topic in audience.topics:
                count = group.topics[topic].partition_count
                if count not in ranges:
                    ranges[count] = _cut(count, len(audience.subscribers))
                # Where partitions are fewer than members, the last members get none.
                for position, partitions in zip(audience.subscribers, ranges[count], strict=False):
                    parts[position][topic] = partitions
        return {
            member_id: assigned if (assigned := group.members[member_id].assigned) == part else part
            for member_id, part in zip(member_ids, parts, strict=True)
        }


def _in_order(group: GroupSpec) -> list[str]:
    def sort_key(member_id: str) -> tuple[bool, str, str]:
        instance_id = group.members[member_id].instance_id
        return (instance_id is None, instance_id or "", member_id)

    return sorted(group.members, key=sort_key)


def _cut(partition_count: int, ways: int) -> list[Partitions]:
    """The ranges that are not empty."""
    least, more = divmod(partition_count, ways)
    ranges = []
    start = 0
    for number in range(min(ways, partition_count)):
        end = start + least + (number < more)
        ranges.append(frozenset(range(start, end)))
        start = end
    return ranges
