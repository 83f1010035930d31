"""A share group is deleted in two steps: its states with the share coordinator, and then the group.

The first step marks all states as being deleted and returns them. The group is removed only when the share coordinator
has deleted them. If the share coordinator fails, the group stays with the marks, and another DeleteGroups deletes them
again. Kafka's `GroupMetadataManager.shareGroupBuildPartitionDeleteRequest`.
"""

from __future__ import annotations

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import Step, Token, response_error
from kwire.groups.draft import Draft
from kwire.groups.modern.groups import Groups
from kwire.groups.share.changes import StatesChange
from kwire.groups.share.group import ShareGroup
from kwire.groups.share.states import PartitionStates
from kwire.groups.share_states import ToDelete
from kwire.groups.topics import Topics


@attrs.define(eq=False)
class Deleting:
    groups: Groups[ShareGroup]
    topics: Topics

    def begin_group(self, step: Step, group_id: str, token: Token) -> None:
        """Replies with a `ToDelete`, which is empty for other kinds of groups too, or with the KafkaError."""
        group = self.groups.find(group_id)
        if group is None:
            step.reply(token, {})
            return
        try:
            group.check_delete()
        except KafkaError as refused:
            step.reply(token, refused)
            return
        to_delete = self._of_group(group)
        names = {topic_id: self._name(group, topic_id) for topic_id in to_delete}
        states = PartitionStates(deleting=names)
        draft = Draft()
        if states != group.states:
            draft.change(group, StatesChange(group_id, states))
        draft.then(lambda later: later.reply(token, to_delete))
        draft.append(step, lambda later, error: later.reply(token, _failure(error)))

    def _of_group(self, group: ShareGroup) -> ToDelete:
        """Returns all states, also those of an earlier deletion that failed, unless the topic was deleted."""
        found: dict[Uuid, set[int]] = {}
        for topics in (group.states.initializing, group.states.initialized):
            for topic_id, it in topics.items():
                found.setdefault(topic_id, set()).update(it.partitions)
        for topic_id in group.states.deleting:
            found.setdefault(topic_id, set()).update(self.partitions_of(topic_id))
        return {topic_id: sorted(partitions) for topic_id, partitions in found.items() if partitions}

    def partitions_of(self, topic_id: Uuid) -> range:
        """Returns all partitions of a topic; none if it was deleted."""
        name = self.topics.name_of(topic_id)
        topic = None if name is None else self.topics.find(name)
        return range(0 if topic is None else topic.spec.partition_count)

    def _name(self, group: ShareGroup, topic_id: Uuid) -> str:
        for topics in (group.states.initialized, group.states.initializing):
            if topic_id in topics:
                return topics[topic_id].name
        return group.states.deleting[topic_id]


def _failure(error: ErrorCode) -> KafkaError:
    return KafkaError(response_error(error))
