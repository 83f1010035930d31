"""Decides on DeleteTopics: by name, or from version 6 on also by id."""

from __future__ import annotations

from collections import Counter

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_topics import RemoveTopicRecord
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kwire_protocol.wire import NULL_UUID, Uuid, uuid_to_text

from kwire.metadata.controller.deciding import (
    ANY_MUTATIONS,
    MAX_RECORDS_PER_REQUEST,
    ClusterState,
    Mutations,
    Records,
    repeated,
    too_many,
)
from kwire.metadata.image import TopicImage
from kwire.names.topic_names import no_such_topic

DELETION_DISABLED_SINCE = 3
"""The first version whose clients have the error code TOPIC_DELETION_DISABLED."""


def delete_topics(
    state: ClusterState,
    request: DeleteTopicsRequest,
    mutations: Mutations = ANY_MUTATIONS,
    *,
    version: int,
) -> tuple[Records, DeleteTopicsResponse]:
    """Deletes topics. Names and ids that occur twice delete nothing."""
    mutations.begin()
    if not state.config.delete_topic_enable:
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
            both = f"You may not specify both topic name and topic id: topic {quoted(topic.name)}."
            results.append(_failed(topic.name, topic.topic_id, both))
    results += [
        _failed(name, NULL_UUID, repeated(f"topic name {quoted(name)}")) for name, count in names.items() if count > 1
    ]
    results += [
        _failed(None, topic_id, repeated(f"topic id {uuid_to_text(topic_id)}"))
        for topic_id, count in ids.items()
        if count > 1
    ]

    found: dict[Uuid, TopicImage] = {}
    for topic_id in (topic_id for topic_id, count in ids.items() if count == 1):
        by_id = state.image.topics_by_id.get(topic_id)
        if by_id is None:
            unknown = f"This server does not host this topic ID: {uuid_to_text(topic_id)} not found."
            results.append(DeletableTopicResult(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, unknown))
        else:
            found[topic_id] = by_id
    for name in (name for name, count in names.items() if count == 1):
        by_name = state.image.topics.get(name)
        if by_name is None:
            unknown = no_such_topic(name)
            results.append(DeletableTopicResult(name, NULL_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown))
        elif by_name.topic_id in ids:
            found.pop(by_name.topic_id, None)
            supplied = f"The topic name {quoted(name)} maps to an ID that was already supplied."
            results.append(_failed(name, by_name.topic_id, supplied))
        else:
            found[by_name.topic_id] = by_name
    if len(found) > MAX_RECORDS_PER_REQUEST:
        error = too_many(len(found), "topics", MAX_RECORDS_PER_REQUEST)
        results += [
            DeletableTopicResult(topic.name, topic.topic_id, error.code, error.message) for topic in found.values()
        ]
        return [], DeleteTopicsResponse(responses=results)
    records: Records = []
    for topic_id, image in found.items():
        result = DeletableTopicResult(image.name, topic_id)
        try:
            mutations.take(len(image.partitions))
            records.append(RemoveTopicRecord(topic_id))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return records, DeleteTopicsResponse(responses=results)


def _failed(name: str | None, topic_id: Uuid, why: str) -> DeletableTopicResult:
    return DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, why)


def _disabled(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
    code = ErrorCode.INVALID_REQUEST if version < DELETION_DISABLED_SINCE else ErrorCode.TOPIC_DELETION_DISABLED
    why = "Topic deletion is disabled: delete.topic.enable is false."
    topics = [(name, NULL_UUID) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(name, topic_id, code, why) for name, topic_id in topics]
        + [DeletableTopicResult(topic.name, topic.topic_id, code, why) for topic in request.topics]
    )
