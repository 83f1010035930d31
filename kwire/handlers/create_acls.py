"""CreateAcls: v1-3.

* v1: pattern types (KIP-290)
* v2: flexible
* v3: resources of the type user (KIP-373)

kwire has no authorizer, so there are no ACLs: each is refused with SECURITY_DISABLED, as by a Kafka without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

from kwire.handlers._shared.authorization import allows
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    if not allows(broker, context, Operation.ALTER, ResourceType.CLUSTER):
        refused = AclCreationResult(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return CreateAclsResponse(results=[refused] * len(request.creations))
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return CreateAclsResponse(results=[refused] * len(request.creations))
