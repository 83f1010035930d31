"""Share-partitions that other nodes coordinate: the requests to these nodes, and their responses.

A pure machine. A request has one kind and one group. So for each node, kind and group at most one request is under way,
and questions added meanwhile go into the next one. Kafka's `PersisterStateManager`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.share.coordinator.kinds import Kind, PartitionRequest, Result, result_of
from kwire.share.coordinator.state import SharePartitionKey

MAX_WAITING: Final = 10_000
"""The maximum number of questions for one node that wait to be sent. Further ones are refused."""
MAX_PARTITIONS: Final = 1_000
"""The maximum number of share-partitions in one request."""
MAX_REQUESTS: Final = 20
"""The maximum number of requests under way to one node."""

Subject: TypeAlias = tuple[Kind, str]
"""The kind and the group of a request."""


@attrs.define(eq=False)
class Question:
    """The part of a request for one share-partition."""

    kind: Kind
    key: SharePartitionKey
    requested: PartitionRequest


@attrs.frozen(eq=False)
class StatesRequest:
    """A request for a node, and its questions."""

    node_id: int
    subject: Subject
    request: Any
    questions: list[Question]


@attrs.define(eq=False)
class _Node:
    waiting: dict[Subject, list[Question]] = attrs.field(factory=dict)
    count: int = 0
    """The number of waiting questions."""
    busy: set[Subject] = attrs.field(factory=set)


class RemoteStates:
    """The questions to other nodes."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}

    def add(self, question: Question, node_id: int) -> None:
        """Adds a question. Raises KafkaError(COORDINATOR_NOT_AVAILABLE) if too many wait for that node."""
        node = self._nodes.setdefault(node_id, _Node())
        if node.count >= MAX_WAITING:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"too many requests wait for node {node_id}")
        node.count += 1
        node.waiting.setdefault((question.kind, question.key.group_id), []).append(question)

    def next_request(self, node_id: int) -> StatesRequest | None:
        """Returns a request for that node; None if no question waits, or MAX_REQUESTS are under way.

        Call `answered` after each.
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
            # A share-partition occurs once in a request.
            if question.key in taken or len(taken) == MAX_PARTITIONS:
                left.append(question)
            else:
                taken[question.key] = question
        if left:
            node.waiting[subject] = left
        node.count -= len(taken)
        node.busy.add(subject)
        topics: dict[Uuid, list[PartitionRequest]] = {}
        for key, question in taken.items():
            topics.setdefault(key.topic_id, []).append(question.requested)
        kind, group_id = subject
        return StatesRequest(node_id, subject, kind.request(group_id, topics), list(taken.values()))

    def answered(self, sent: StatesRequest, response: Any | None) -> list[tuple[Question, Result]]:
        """Takes the outcome of a request. Returns each question with its result.

        Questions without an answer are COORDINATOR_NOT_AVAILABLE. They may have been carried out anyway.
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
