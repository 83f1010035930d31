"""The replica that a consumer reads from, if its request names a rack (KIP-392). Pure.

A consumer fetches from the leader first. The leader names an in-sync follower in the consumer's rack
(preferred_read_replica), and sends no records; the consumer continues there. As in Kafka's `RackAwareReplicaSelector`
and `ReplicaManager.findPreferredReadReplica`.
"""

from __future__ import annotations

from collections.abc import Callable

from kwire.replicas.roles import Leader


def closest_follower(role: Leader, offset: int, is_near: Callable[[int], bool]) -> int | None:
    """The follower that a consumer should read from; None if there is none, so that it stays with the leader.

    It is in sync, has the offset, and is near. Of several it is the one with the largest log end, of equals the one
    that caught up last. `is_near(node_id)` returns True if a broker is alive, in the consumer's rack, and has the
    listener that it uses.
    """
    near = [
        (follower.log_end_offset, follower.last_caught_up_ms or 0, node_id)
        for node_id, follower in role.followers.items()
        if node_id in role.isr and follower.log_start_offset <= offset <= follower.log_end_offset and is_near(node_id)
    ]
    return max(near)[2] if near else None
