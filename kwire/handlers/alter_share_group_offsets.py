"""AlterShareGroupOffsets: v0, flexible (KIP-932).

Only of groups without members. A group that does not exist is made.
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

from kwire.handlers._shared.authorization import MAY_NOT_READ, check, divided
from kwire.handlers._shared.group_protocols import SHARE, check_protocol
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(
    broker: Broker, request: AlterShareGroupOffsetsRequest, context: Context
) -> AlterShareGroupOffsetsResponse:
    try:
        check_protocol(broker, SHARE)
        check(broker, context, Operation.READ, ResourceType.GROUP, request.group_id)
        allowed, refused = divided(broker, context, Operation.READ, request.topics, lambda it: it.topic_name)
        answers = await broker.groups.alter_share_offsets(request.replace(topics=allowed))
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
