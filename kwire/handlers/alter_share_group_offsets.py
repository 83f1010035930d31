"""AlterShareGroupOffsets: v0, flexible (KIP-932).

Only offsets of groups without members can be altered. A group that does not exist is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
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
    request: AlterShareGroupOffsetsRequest,
    context: Context,
) -> AlterShareGroupOffsetsResponse:
    try:
        check_protocol(metadata, SHARE)
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        allowed, refused = authorization.divided(context, Operation.READ, request.topics, lambda it: it.topic_name)
        answers = await groups.alter_share_offsets(request.replace(topics=allowed))
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    return AlterShareGroupOffsetsResponse(
        responses=[
            *answers,
            *(
                AlterShareGroupOffsetsResponseTopic(
                    topic.topic_name,
                    partitions=[
                        AlterShareGroupOffsetsResponsePartition(
                            it.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, MAY_NOT_READ
                        )
                        for it in topic.partitions
                    ],
                )
                for topic in refused
            ),
        ]
    )
