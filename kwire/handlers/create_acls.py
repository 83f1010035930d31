"""CreateAcls: v1-3.

* v1: pattern types (KIP-290)
* v2: flexible
* v3: resources of the type user (KIP-373)

This broker uses the new ACLs when the response is sent. The rules are in `kwire.metadata.controller.access.acls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

from kwire.handlers._shared.acls import check_known, standard_authorizer
from kwire.metadata.controller.access.acls import create_acls
from kwire.security.acls.acl import Acl
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, authorization: Authorization, request: CreateAclsRequest, context: Context
) -> CreateAclsResponse:
    acls = [
        Acl(
            it.resource_type,
            it.resource_name,
            it.resource_pattern_type,
            it.principal,
            it.host,
            it.operation,
            it.permission_type,
        )
        for it in request.creations
    ]
    for acl in acls:
        check_known(acl.resource_type, acl.pattern_type, acl.operation, acl.permission)
    try:
        authorization.check(context, Operation.ALTER, ResourceType.CLUSTER)
        standard_authorizer(authorization)
        refusals = await metadata.change(create_acls, acls)
    except KafkaError as error:
        return CreateAclsResponse(results=[AclCreationResult(error.code, error.message)] * len(acls))
    return CreateAclsResponse(
        results=[AclCreationResult() if it is None else AclCreationResult(it.code, it.message) for it in refusals]
    )
