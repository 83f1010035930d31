"""Members of groups of confluent-kafka."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from testkit.basics.waiting import Deadline
from testkit.clients.confluent import group_of
from testkit.clients.members import shared_out


class Moves:
    """The partitions that a member was assigned, and those that it had to give up."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []
        self.taken: list[list[int]] = []

    def subscribe(self, consumer: Consumer, topic: str) -> None:
        consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.given.append(sorted(partition.partition for partition in partitions))

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.taken.append(sorted(partition.partition for partition in partitions))


def settle(members: list[Consumer], partitions: int, *, most: int) -> list[list[int]]:
    """Polls the members one after the other until they share the partitions of one topic. Returns the partitions of
    each.
    """
    deadline = Deadline()
    owned: list[list[int]] = []
    while not shared_out(owned, partitions, most=most) and deadline.not_over(f"a balance; owned: {owned}"):
        for member in members:
            message = member.poll(0.05)
            assert message is None or message.error() is None, message and message.error()
        owned = [group_of(member) for member in members]
    return owned
