"""Deciding on DeleteTopics: by name, or from version 6 on also by id."""

from __future__ import annotations

from collections import Counter

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_topics import RemoveTopicRecord
from kwire_protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.metadata.controller import MAX_RECORDS_PER_REQUEST, ClusterState, Records
from kwire.metadata.image import TopicImage

DELETION_DISABLED_SINCE = 3
"""Before that version clients do not know TOPIC_DELETION_DISABLED."""

UNKNOWN_TOPIC = "This server does not host this topic-partition."
UNKNOWN_ID = "This server does not host this topic ID."


def delete_topics(
    state: ClusterState, request: DeleteTopicsRequest, *, version: int, enabled: bool
) -> tuple[Records, DeleteTopicsResponse]:
    """`enabled` is delete.topic.enable. Names and ids that are given twice delete nothing."""
    if not enabled:
        return [], _disabled(request, version)
    results: list[DeletableTopicResult] = []
    names: Counter[str] = Counter(request.topic_names)
    ids: Counter[Uuid] = Counter()
    for topic in request.topics:
        if topic.name is None:
            if topic.topic_id == NULL_UUID:
                results.append(_failed(None, NULL_UUID, "Neither topic name nor id were specified."))
            else:
                ids[topic.topic_id] += 1
        elif topic.topic_id == NULL_UUID:
            names[topic.name] += 1
        else:
            results.append(_failed(topic.name, topic.topic_id, "You may not specify both topic name and topic id."))
    results += [_failed(name, NULL_UUID, "Duplicate topic name.") for name, count in names.items() if count > 1]
    results += [_failed(None, topic_id, "Duplicate topic id.") for topic_id, count in ids.items() if count > 1]

    found: dict[Uuid, TopicImage] = {}
    for topic_id in (topic_id for topic_id, count in ids.items() if count == 1):
        by_id = state.image.topics_by_id.get(topic_id)
        if by_id is None:
            results.append(DeletableTopicResult(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID))
        else:
            found[topic_id] = by_id
    for name in (name for name, count in names.items() if count == 1):
        by_name = state.image.topics.get(name)
        if by_name is None:
            results.append(DeletableTopicResult(name, NULL_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC))
        elif by_name.topic_id in ids:
            found.pop(by_name.topic_id, None)
            results.append(
                _failed(name, by_name.topic_id, "The provided topic name maps to an ID that was already supplied.")
            )
        else:
            found[by_name.topic_id] = by_name
    if len(found) > MAX_RECORDS_PER_REQUEST:
        return [], DeleteTopicsResponse(
            responses=results
            + [
                DeletableTopicResult(
                    topic.name,
                    topic.topic_id,
                    ErrorCode.POLICY_VIOLATION,
                    "Unable to perform excessively large batch operation.",
                )
                for topic in found.values()
            ]
        )
    results += [DeletableTopicResult(topic.name, topic.topic_id) for topic in found.values()]
    return [RemoveTopicRecord(topic_id) for topic_id in found], DeleteTopicsResponse(responses=results)


def _failed(name: str | None, topic_id: Uuid, why: str) -> DeletableTopicResult:
    return DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, why)


def _disabled(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
    if version < DELETION_DISABLED_SINCE:
        code, why = ErrorCode.INVALID_REQUEST, "This version does not support topic deletion."
    else:
        code, why = ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."
    topics = [(name, NULL_UUID) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(name, topic_id, code, why) for name, topic_id in topics]
        + [DeletableTopicResult(topic.name, topic.topic_id, code, why) for topic in request.topics]
    )
