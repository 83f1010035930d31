"""ShareGroupHeartbeat: v1, flexible (KIP-932).

Members use it to join, stay, change their subscription and leave. `groups/share/heartbeats.py` has the rules.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

from kwire.groups.share.member import JOINING_EPOCH, LEAVING_EPOCH
from kwire.handlers._shared.group_protocols import SHARE, check_protocol
from kwire.handlers._shared.members import member_context
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService

MAX_MEMBER_ID_LENGTH: Final = 36
"""The maximum length of a member id: that of a UUID as text."""


def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: ShareGroupHeartbeatRequest,
    context: Context,
) -> ShareGroupHeartbeatResponse | Coroutine[Future[Any], None, ShareGroupHeartbeatResponse]:
    try:
        check_protocol(metadata, SHARE)
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        if not request.member_id or len(request.member_id) > MAX_MEMBER_ID_LENGTH:
            raise _invalid("Invalid member id in the request.")
        for name in request.subscribed_topic_names or ():
            if not authorization.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        _check(request)
        answer = groups.share_heartbeat(request, member_context(authorization, context))
    except KafkaError as error:
        return _refused(error)
    return answer if isinstance(answer, ShareGroupHeartbeatResponse) else _answered(answer)


async def _answered(
    answer: Coroutine[Future[Any], None, ShareGroupHeartbeatResponse],
) -> ShareGroupHeartbeatResponse:
    try:
        return await answer
    except KafkaError as error:
        return _refused(error)


def _refused(error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raises KafkaError(INVALID_REQUEST) if the request contradicts itself."""
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
