"""Members of groups of kafka-python."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testkit.basics.waiting import Deadline
from testkit.clients.members import shared_out

# A poll of kafka-python 3.0.12 that ends in the midst of a join may let the client forget the partitions: it owns
# nothing then until the next rebalance. So a poll is long enough for a join on a machine that has much else to do.
JOIN_WITHIN_MS = 2_000


def partitions_of(consumer: Any) -> list[int]:
    return sorted(partition.partition for partition in consumer.assignment())


def settle(members: list[Any], partitions: int, *, most: int) -> list[list[int]]:
    """Polls the members until they share the partitions of one topic; what each owns.

    All at once, each in a thread, since a join waits for all members.
    """
    deadline = Deadline()
    owned: list[list[int]] = []
    while not shared_out(owned, partitions, most=most) and deadline.not_over(f"a balance; owned: {owned}"):
        with ThreadPoolExecutor(len(members)) as threads:
            list(threads.map(lambda member: member.poll(timeout_ms=JOIN_WITHIN_MS), members))
        owned = [partitions_of(member) for member in members]
    return owned
