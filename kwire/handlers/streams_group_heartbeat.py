"""StreamsGroupHeartbeat: v0-1, flexible (KIP-1071).

* v1: topology_description_required (KIP-1331); acceptable_recovery_lag, and tasks that warm up

Members use it to join, stay, report their tasks and leave. `groups/streams/heartbeats.py` has the rules. Missing
internal topics are created in the background (`groups/streams_topics.py`).
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sized
from typing import TYPE_CHECKING, Any, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

from kwire.groups.streams.heartbeats import UNCHANGED_MS
from kwire.groups.streams.member import JOINING_EPOCH, STATIC_LEAVING_EPOCH
from kwire.groups.streams.topology import StatusCode, check_size
from kwire.groups.streams_topics import Answer, InternalTopic
from kwire.handlers._shared.group_protocols import STREAMS, check_protocol
from kwire.handlers._shared.members import member_context
from kwire.names.topic_names import check_topic_name, is_internal
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService

FIRST_VERSION_WITH_WARMUP: Final = 1
_SHOWN: Final = 3


def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: StreamsGroupHeartbeatRequest,
    context: Context,
) -> StreamsGroupHeartbeatResponse | Coroutine[Future[Any], None, StreamsGroupHeartbeatResponse]:
    try:
        check_protocol(metadata, STREAMS)
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        if request.topology is not None:
            check_size(request.topology)
            _check_topics(authorization, context, request.topology)
        _check_supported(request, context.api_version)
        _check(request)
        answer = groups.streams_heartbeat(request, member_context(authorization, context))
    except KafkaError as error:
        return _refused(error)
    if isinstance(answer, Answer):
        return _with_topics(authorization, groups, request, context, answer)
    return _answered(authorization, groups, request, context, answer)


async def _answered(
    authorization: Authorization,
    groups: GroupService,
    request: StreamsGroupHeartbeatRequest,
    context: Context,
    answer: Coroutine[Future[Any], None, Answer],
) -> StreamsGroupHeartbeatResponse:
    try:
        return _with_topics(authorization, groups, request, context, await answer)
    except KafkaError as error:
        return _refused(error)


def _refused(error: KafkaError) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


# Internal topics


def _with_topics(
    authorization: Authorization,
    groups: GroupService,
    request: StreamsGroupHeartbeatRequest,
    context: Context,
    answer: Answer,
) -> StreamsGroupHeartbeatResponse:
    """Starts to create missing internal topics, and reports to the member why they are missing."""
    if answer.to_create:
        denied = _denied(authorization, context, answer.to_create)
        if denied:
            _add_detail(answer.response, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
        else:
            failures = groups.create_internal_topics(request.group_id, answer.to_create)
            if failures:
                shown = ", ".join(f"{name} ({failures[name]})" for name in list(failures)[:_SHOWN])
                more = len(failures) - _SHOWN
                _add_detail(answer.response, f"Creation failed: {shown}{f' and {more} more' if more > 0 else ''}.")
    return answer.response


def _denied(authorization: Authorization, context: Context, topics: Iterable[InternalTopic]) -> list[str]:
    if authorization.allows(context, Operation.CREATE, ResourceType.CLUSTER):
        return []
    return [
        it.name for it in topics if not authorization.allows(context, Operation.CREATE, ResourceType.TOPIC, it.name)
    ]


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    statuses = response.status = response.status or []
    for status in statuses:
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail = f"{status.status_detail}; {detail}"
            return
    statuses.append(Status(StatusCode.MISSING_INTERNAL_TOPICS, detail))


# Checks


def _check_topics(authorization: Authorization, context: Context, topology: Topology) -> None:
    """Raises KafkaError: STREAMS_INVALID_TOPOLOGY, TOPIC_AUTHORIZATION_FAILED."""
    names = list(
        dict.fromkeys(
            name
            for part in topology.subtopologies
            for name in (
                *part.source_topics,
                *part.repartition_sink_topics,
                *(it.name for it in part.repartition_source_topics),
                *(it.name for it in part.state_changelog_topics),
            )
        )
    )
    if prohibited := [name for name in names if is_internal(name)]:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited.",
        )
    if invalid := [name for name in names if not _is_valid(name)]:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Topic names {','.join(invalid)} are not valid topic names.",
        )
    if not all(authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _check_supported(request: StreamsGroupHeartbeatRequest, api_version: int) -> None:
    """Raises KafkaError(INVALID_REQUEST) for features that Apache Kafka 4.3.1 does not support yet.

    From v1 on, members report the progress of their tasks, and so can have warm-up tasks.
    """
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if api_version < FIRST_VERSION_WITH_WARMUP:
        if request.task_offsets is not None:
            raise _invalid("TaskOffsets are not supported yet.")
        if request.task_end_offsets is not None:
            raise _invalid("TaskEndOffsets are not supported yet.")
        if request.warmup_tasks:
            raise _invalid("WarmupTasks are not supported yet.")
    if request.topology is not None and any(it.source_topic_regex for it in request.topology.subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises KafkaError: INVALID_REQUEST if the request contradicts itself, STREAMS_INVALID_TOPOLOGY."""
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.member_epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == UNCHANGED_MS:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        for name, of_role in zip(("Active", "Standby", "Warmup"), tasks, strict=True):
            if not _is_empty(of_role):
                raise _invalid(f"{name}Tasks must be empty when (re-)joining.")
        if request.topology is None:
            raise _invalid("Topology must be non-null when (re-)joining.")
        for part in request.topology.subtopologies:
            for topic in part.state_changelog_topics:
                if topic.partitions:
                    raise KafkaError(
                        ErrorCode.STREAMS_INVALID_TOPOLOGY,
                        f"Changelog topic {topic.name} must have an undefined partition count, "
                        f"but it is set to {topic.partitions}.",
                    )
    elif request.member_epoch == STATIC_LEAVING_EPOCH:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVING_EPOCH:
        raise _invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    tags = request.client_tags or ()
    if len({tag.key for tag in tags}) < len(tags):
        raise _invalid("A client tag must have one value.")
    if any(it is not None for it in tasks) and any(it is None for it in tasks):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOINING_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _is_empty(tasks: Sized | None) -> bool:
    return tasks is not None and not len(tasks)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
