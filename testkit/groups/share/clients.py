"""Clients of share groups, and a share coordinator, for tests of the machine: they do what KIP-932 requires.

A `Client` sends its topics when they have changed, when it joins, and when an answer was lost. It takes its assignment
as it comes. A test may lose its answers, or let it fall silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kwire_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kwire_protocol.wire import Uuid, Writer

from kwire.groups.group import MemberContext
from kwire.groups.share_states import AlterationBegun, OffsetDeletionBegun, StatesToInitialize
from testkit.groups.shard_driver import GROUP, ShardDriver, left_as_it_is

TopicIdPartition = tuple[Uuid, int]
"""A partition: the topic's id and the partition's number."""

JOINING, LEAVING = 0, -1

FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


def heartbeat(driver: ShardDriver, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    """The answer to any heartbeat."""
    token = driver.token()
    context = MemberContext("app", "/127.0.0.1", 1)
    with left_as_it_is(request, version=1):
        effects = driver.shard.share_heartbeat(request, context, token, now=driver.now)
    driver.run(effects)
    response = driver.replies[token]
    assert isinstance(response, ShareGroupHeartbeatResponse)
    response.write(Writer(), 1)
    return response


@attrs.define(eq=False)
class Client:
    """One client of a group."""

    driver: ShardDriver
    member_id: str
    topics: frozenset[str] = frozenset({"t"})
    group: str = GROUP
    epoch: int = JOINING
    assigned: set[TopicIdPartition] = attrs.field(factory=set)
    is_in: bool = False
    """It was answered, and neither left nor was thrown out since."""
    names_topics: bool = True
    """The next heartbeat has the topics."""

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self.names_topics = True

    def heartbeat(self, *, is_lost: bool = False) -> ErrorCode:
        """Sends a heartbeat and takes in the answer, unless that is lost."""
        names = sorted(self.topics) if self.names_topics or self.epoch == JOINING else None
        response = heartbeat(
            self.driver,
            ShareGroupHeartbeatRequest(self.group, self.member_id, self.epoch, subscribed_topic_names=names),
        )
        if is_lost:
            self.names_topics = True
            return ErrorCode.NONE
        error = ErrorCode(response.error_code)
        if error is ErrorCode.NONE:
            assert response.member_id == self.member_id
            assert response.assignment is not None or names is None, "a member that names topics gets its assignment"
            self.epoch, self.is_in, self.names_topics = response.member_epoch, True, False
            if response.assignment is not None:
                self.assigned = {
                    (topic.topic_id, partition)
                    for topic in response.assignment.topic_partitions
                    for partition in topic.partitions
                }
        elif error in FENCED:
            self.be_out()
        else:
            self.names_topics = True
        return error

    def be_out(self) -> None:
        """It is no member any more: it joins with its next heartbeat."""
        self.epoch, self.is_in, self.names_topics = JOINING, False, True
        self.assigned.clear()

    def leave(self) -> ErrorCode:
        response = heartbeat(self.driver, ShareGroupHeartbeatRequest(self.group, self.member_id, LEAVING))
        error = ErrorCode(response.error_code)
        self.be_out()
        return error


@attrs.define(eq=False)
class Keeper:
    """The share coordinators: they answer when a test calls for it. `states` are the states that exist."""

    driver: ShardDriver
    states: dict[tuple[str, TopicIdPartition], tuple[int, int]] = attrs.field(factory=dict)
    """Group and partition -> state epoch and start offset."""

    def answer(self, *errors: ErrorCode) -> dict[TopicIdPartition, ErrorCode]:
        """Answers the first request. Its partitions fail with these errors, in order; without errors, all succeed.

        Returns the answer.
        """
        requested = self.driver.to_initialize.pop(0)
        outcome: dict[TopicIdPartition, ErrorCode] = {}
        for number, (partition, start_offset) in enumerate(_topic_id_partitions(requested)):
            error = errors[number % len(errors)] if errors else ErrorCode.NONE
            if error is ErrorCode.NONE:
                self.states[requested.group_id, partition] = (requested.state_epoch, start_offset)
            outcome[partition] = error
        self.driver.run(self.driver.shard.share_states_initialized(requested.group_id, outcome, now=self.driver.now))
        return outcome

    def answer_all(self) -> None:
        while self.driver.to_initialize:
            self.answer()

    def delete_group(self, group: str = GROUP, *, fails: bool = False) -> ErrorCode:
        """DeleteGroups, as the service does it."""
        token = self.driver.token()
        self.driver.run(self.driver.shard.begin_share_deletion(group, token, now=self.driver.now))
        to_delete = self.driver.replies[token]
        if isinstance(to_delete, KafkaError):
            return to_delete.code
        if fails:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        for topic_id, partitions in to_delete.items():
            for partition in partitions:
                self.states.pop((group, (topic_id, partition)), None)
        (error,) = self.driver.delete_groups(group)
        return error

    def alter(self, topic: str, offsets: Mapping[int, int], group: str = GROUP) -> AlterationBegun | KafkaError:
        """AlterShareGroupOffsets of one topic, up to the question, which waits for its answer."""
        partitions = [AlterShareGroupOffsetsRequestPartition(*each) for each in offsets.items()]
        request = AlterShareGroupOffsetsRequest(group, [AlterShareGroupOffsetsRequestTopic(topic, partitions)])
        token = self.driver.token()
        self.driver.run(self.driver.shard.begin_share_alteration(request, token, now=self.driver.now))
        begun = self.driver.replies[token]
        if isinstance(begun, KafkaError):
            return begun
        assert isinstance(begun, AlterationBegun)
        if begun.states.start_offsets:
            self.driver.to_initialize.append(begun.states)
        return begun

    def delete_offsets(
        self, *topics: str, group: str = GROUP, fails: bool = False
    ) -> dict[str, ErrorCode] | KafkaError:
        """DeleteShareGroupOffsets, as the service does it: the error of each topic."""
        request = DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic(it) for it in topics])
        token, done = self.driver.token(), self.driver.token()
        self.driver.run(self.driver.shard.begin_share_offset_deletion(request, token, now=self.driver.now))
        begun = self.driver.replies[token]
        if isinstance(begun, KafkaError):
            return begun
        assert isinstance(begun, OffsetDeletionBegun)
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else ErrorCode.NONE
        if begun.to_delete and not fails:
            for topic_id, partitions in begun.to_delete.items():
                for partition in partitions:
                    self.states.pop((group, (topic_id, partition)), None)
            self.driver.run(self.driver.shard.share_states_deleted(group, begun.to_delete, done, now=self.driver.now))
            if (failed := self.driver.replies[done]) is not None:
                assert isinstance(failed, KafkaError)
                return failed
        refused = {it.topic_name: ErrorCode(it.error_code) for it in begun.refused}
        return refused | dict.fromkeys(begun.names.values(), error)

    def delete_topic(self, topic_id: Uuid) -> None:
        for key in [it for it in self.states if it[1][0] == topic_id]:
            del self.states[key]


def _topic_id_partitions(requested: StatesToInitialize) -> list[tuple[TopicIdPartition, int]]:
    return [
        ((topic_id, partition), offset)
        for topic_id, offsets in requested.start_offsets.items()
        for partition, offset in offsets.items()
    ]
