"""AlterUserScramCredentials: v0, flexible (KIP-554).

The rules are in `kwire.metadata.controller.access.scram_users`. A change applies to the next login; existing
connections of the user are unaffected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

from kwire.metadata.controller.access.scram_users import alter_scram_credentials
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, authorization: Authorization, request: AlterUserScramCredentialsRequest, context: Context
) -> AlterUserScramCredentialsResponse:
    try:
        authorization.check(context, Operation.ALTER, ResourceType.CLUSTER)
        return await metadata.change(alter_scram_credentials, request)
    except KafkaError as error:
        # The response has no top-level error.
        names = dict.fromkeys([*(it.name for it in request.deletions), *(it.name for it in request.upsertions)])
        return AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResult(name, error.code, error.message) for name in names]
        )
