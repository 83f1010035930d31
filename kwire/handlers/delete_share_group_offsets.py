"""DeleteShareGroupOffsets: v0, flexible (KIP-932).

Only offsets of groups without members, and of whole topics, can be deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

from kwire.handlers._shared.group_protocols import SHARE, check_protocol
from kwire.handlers.authorization import MAY_NOT_READ
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService,
    authorization: Authorization,
    groups: GroupService,
    request: DeleteShareGroupOffsetsRequest,
    context: Context,
) -> DeleteShareGroupOffsetsResponse:
    try:
        check_protocol(metadata, SHARE)
        authorization.check(context, Operation.DELETE, ResourceType.GROUP, request.group_id)
        allowed, refused = authorization.divided(context, Operation.READ, request.topics, lambda it: it.topic_name)
        answers = await groups.delete_share_offsets(request.replace(topics=allowed))
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    return DeleteShareGroupOffsetsResponse(
        responses=[
            *answers,
            *(
                DeleteShareGroupOffsetsResponseTopic(
                    topic.topic_name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=MAY_NOT_READ
                )
                for topic in refused
            ),
        ]
    )
