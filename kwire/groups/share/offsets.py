"""The group's part of AlterShareGroupOffsets and DeleteShareGroupOffsets.

The offsets themselves are with the share coordinators. To alter them their states are initialized again, in the group's
epoch, so that leaders of partitions that still write in an earlier one are fenced. Both are for groups without members
only. Each begins with a mark in the group's states, and ends when the share coordinators have answered. Kafka's
`GroupMetadataManager.alterShareGroupOffsets` and `sharePartitionsEligibleForOffsetDeletion`.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kwire_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponseTopic,
)
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import Step, Token, response_error
from kwire.groups.draft import Draft
from kwire.groups.modern.groups import Groups
from kwire.groups.share.changes import StatesChange
from kwire.groups.share.deleting import Deleting
from kwire.groups.share.group import NO_STATES, ShareGroup
from kwire.groups.share.initializing import Initializing
from kwire.groups.share.states import NamedPartitions
from kwire.groups.share_states import AlterationBegun, OffsetDeletionBegun, StatesToInitialize
from kwire.groups.topics import Topics

UNKNOWN_TOPIC = "This server does not host this topic-partition."
NOTHING_TO_DELETE = "There is no offset information to delete."


@attrs.define(eq=False)
class Offsets:
    groups: Groups[ShareGroup]
    topics: Topics
    initializing: Initializing
    deleting: Deleting

    # Altering

    def begin_alteration(self, step: Step, request: AlterShareGroupOffsetsRequest, token: Token) -> None:
        """Replies with an `AlterationBegun`, or with the KafkaError. Makes the group if it does not exist."""
        draft = Draft()
        try:
            group = self.groups.get_or_make(draft, request.group_id)
            group.check_delete()
        except KafkaError as refused:
            draft.undo()
            step.reply(token, refused)
            return
        start_offsets: dict[Uuid, dict[int, int]] = {}
        answers = [self._alter(topic, start_offsets) for topic in request.topics]
        names = {it.topic_id: it.topic_name for it in answers}
        if start_offsets:
            marked = {
                topic_id: NamedPartitions(names[topic_id], frozenset(offsets))
                for topic_id, offsets in start_offsets.items()
            }
            self.initializing.mark(step, draft, group, marked)
        else:
            draft.undo()
        begun = AlterationBegun(answers, StatesToInitialize(request.group_id, group.epoch, start_offsets))
        draft.then(lambda later: later.reply(token, begun))
        draft.append(step, lambda later, error: later.reply(token, KafkaError(response_error(error))))

    def _alter(
        self, requested: AlterShareGroupOffsetsRequestTopic, start_offsets: dict[Uuid, dict[int, int]]
    ) -> AlterShareGroupOffsetsResponseTopic:
        topic = self.topics.find(requested.topic_name)
        if topic is None:
            return AlterShareGroupOffsetsResponseTopic(
                requested.topic_name, partitions=[_unknown(it.partition_index) for it in requested.partitions]
            )
        answer = AlterShareGroupOffsetsResponseTopic(requested.topic_name, topic.topic_id)
        for it in requested.partitions:
            if 0 <= it.partition_index < topic.spec.partition_count:
                start_offsets.setdefault(topic.topic_id, {})[it.partition_index] = it.start_offset
                answer.partitions.append(AlterShareGroupOffsetsResponsePartition(it.partition_index))
            else:
                answer.partitions.append(_unknown(it.partition_index))
        return answer

    # Deleting

    def begin_deletion(self, step: Step, request: DeleteShareGroupOffsetsRequest, token: Token) -> None:
        """Replies with an `OffsetDeletionBegun`, or with the KafkaError."""
        try:
            group = self.groups.get(request.group_id)
            group.check_delete()
        except KafkaError as refused:
            step.reply(token, refused)
            return
        begun = OffsetDeletionBegun()
        if group.states is not NO_STATES:
            for topic in request.topics:
                self._delete(group, topic.topic_name, begun)
        draft = Draft()
        states = group.states.with_deleting(begun.names)
        if states != group.states:
            draft.change(group, StatesChange(group.group_id, states))
        draft.then(lambda later: later.reply(token, begun))
        draft.append(step, lambda later, error: later.reply(token, KafkaError(response_error(error))))

    def _delete(self, group: ShareGroup, name: str, begun: OffsetDeletionBegun) -> None:
        topic = self.topics.find(name)
        if topic is None:
            begun.refused.append(_refused(name, UNKNOWN_TOPIC))
        elif (initialized := group.states.initialized.get(topic.topic_id)) is not None:
            begun.add(topic.topic_id, name, sorted(initialized.partitions))
        elif topic.topic_id in group.states.deleting:
            begun.add(topic.topic_id, name, list(self.deleting.partitions_of(topic.topic_id)))
        else:
            begun.refused.append(_refused(name, NOTHING_TO_DELETE))

    def deleted(self, step: Step, group_id: str, topic_ids: Iterable[Uuid], token: Token) -> None:
        """The share coordinators have deleted the states of these topics. Replies with None or a KafkaError."""
        group = self.groups.find(group_id)
        draft = Draft()
        if group is not None and (states := group.states.deleted(topic_ids)) != group.states:
            draft.change(group, StatesChange(group_id, states))
        draft.then(lambda later: later.reply(token, None))
        draft.append(step, lambda later, error: later.reply(token, KafkaError(response_error(error))))


def _unknown(partition: int) -> AlterShareGroupOffsetsResponsePartition:
    return AlterShareGroupOffsetsResponsePartition(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)


def _refused(name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=message
    )
