"""DescribeUserScramCredentials: v0, flexible (KIP-554).

Returns a user's mechanisms with their iterations, which a client needs anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from kwire.metadata.controller.access.scram_users import describe_scram_credentials
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


def handle(
    metadata: MetadataService,
    authorization: Authorization,
    request: DescribeUserScramCredentialsRequest,
    context: Context,
) -> DescribeUserScramCredentialsResponse:
    names = None if request.users is None else [user.name for user in request.users]
    try:
        authorization.check(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    except KafkaError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=error.code,
            error_message=error.message,
            results=[
                DescribeUserScramCredentialsResult(name, error.code, error.message)
                for name in dict.fromkeys(names or ())
            ],
        )
    return describe_scram_credentials(metadata.image.access, names)
