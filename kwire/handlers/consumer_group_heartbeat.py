"""ConsumerGroupHeartbeat: v0-1, flexible (KIP-848).

* v1: subscribed_topic_regex; new members choose their member id (KIP-1082)

Members use it to join, stay, change their subscription and leave. `groups/consumer/heartbeats.py` has the rules.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

from kwire.groups.consumer.member import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from kwire.handlers._shared.group_protocols import CONSUMER, check_protocol
from kwire.handlers._shared.members import member_context
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService

FIRST_VERSION_WITH_CHOSEN_MEMBER_ID: Final = 1


def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: ConsumerGroupHeartbeatRequest,
    context: Context,
) -> ConsumerGroupHeartbeatResponse | Coroutine[Future[Any], None, ConsumerGroupHeartbeatResponse]:
    try:
        check_protocol(metadata, CONSUMER)
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        for name in request.subscribed_topic_names or ():
            if not authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        _check(request, metadata.config.group_consumer_assignors, context.api_version)
        answer = groups.consumer_heartbeat(request, member_context(authorization, context))
    except KafkaError as error:
        return _refused(error)
    return answer if isinstance(answer, ConsumerGroupHeartbeatResponse) else _answered(answer)


async def _answered(
    answer: Coroutine[Future[Any], None, ConsumerGroupHeartbeatResponse],
) -> ConsumerGroupHeartbeatResponse:
    try:
        return await answer
    except KafkaError as error:
        return _refused(error)


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _check(request: ConsumerGroupHeartbeatRequest, assignors: tuple[str, ...], version: int) -> None:
    """Raises KafkaError (INVALID_REQUEST, UNSUPPORTED_ASSIGNOR) if the request contradicts itself."""
    epoch = request.member_epoch
    names_itself = version >= FIRST_VERSION_WITH_CHOSEN_MEMBER_ID or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH
    if names_itself and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
