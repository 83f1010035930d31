"""Share-partitions that other nodes coordinate: which requests they get, and what they say.

A pure machine. A request is of one kind and about one group, so for each node, kind and group one request is under way
at most, and what is asked meanwhile goes into the next one. Kafka's `PersisterStateManager`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.share.coordinator.kinds import Asked, Kind, Result, result_of
from kwire.share.coordinator.state import SharePartitionKey

MAX_WAITING: Final = 10_000
"""Questions for one node that were not sent yet. Further ones are refused."""
MAX_PARTITIONS: Final = 1_000
"""In one request."""
MAX_REQUESTS: Final = 20
"""Under way to one node."""

Subject: TypeAlias = tuple[Kind, str]
"""The kind and the group of a request."""


@attrs.define(eq=False)
class Question:
    """What is asked of one share-partition."""

    kind: Kind
    key: SharePartitionKey
    asked: Asked


@attrs.frozen(eq=False)
class StatesRequest:
    """A request for a node, and what it is about."""

    node_id: int
    subject: Subject
    request: Any
    questions: list[Question]


@attrs.define(eq=False)
class _Node:
    waiting: dict[Subject, list[Question]] = attrs.field(factory=dict)
    count: int = 0
    """Of the questions that wait."""
    busy: set[Subject] = attrs.field(factory=set)


class RemoteStates:
    """The questions to other nodes."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}

    def ask(self, question: Question, node_id: int) -> None:
        """Raises KafkaError(COORDINATOR_NOT_AVAILABLE) if too many wait for that node."""
        node = self._nodes.setdefault(node_id, _Node())
        if node.count >= MAX_WAITING:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"node {node_id} is asked too much")
        node.count += 1
        node.waiting.setdefault((question.kind, question.key.group_id), []).append(question)

    def next_request(self, node_id: int) -> StatesRequest | None:
        """A request for that node; None if there is nothing to ask, or enough is under way.

        Each is followed by `answered`.
        """
        node = self._nodes.get(node_id)
        if node is None or len(node.busy) >= MAX_REQUESTS:
            return None
        subject = next((each for each in node.waiting if each not in node.busy), None)
        if subject is None:
            return None
        taken: dict[SharePartitionKey, Question] = {}
        left: list[Question] = []
        for question in node.waiting.pop(subject):
            # A share-partition is named once in a request.
            if question.key in taken or len(taken) == MAX_PARTITIONS:
                left.append(question)
            else:
                taken[question.key] = question
        if left:
            node.waiting[subject] = left
        node.count -= len(taken)
        node.busy.add(subject)
        topics: dict[Uuid, list[Asked]] = {}
        for key, question in taken.items():
            topics.setdefault(key.topic_id, []).append(question.asked)
        kind, group_id = subject
        return StatesRequest(node_id, subject, kind.request(group_id, topics), list(taken.values()))

    def answered(self, sent: StatesRequest, response: Any | None) -> list[tuple[Question, Result]]:
        """The outcome of a request: each question with its result.

        What was not answered is COORDINATOR_NOT_AVAILABLE. It may have been done all the same.
        """
        node = self._nodes[sent.node_id]
        node.busy.discard(sent.subject)
        if not node.busy and not node.waiting:
            del self._nodes[sent.node_id]
        kind = sent.subject[0]
        silence = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"node {sent.node_id} did not answer")
        outcome: list[tuple[Question, Result]] = []
        for question in sent.questions:
            result = None if response is None else result_of(response, question.key)
            outcome.append((question, kind.refused(question.key.partition, silence) if result is None else result))
        return outcome
