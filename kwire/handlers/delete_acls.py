"""DeleteAcls: v1-3.

* v1: pattern types (KIP-290)
* v2: flexible
* v3: resources of the type user (KIP-373)

kwire has no authorizer, so there are no ACLs: each filter is refused with SECURITY_DISABLED, as by a Kafka without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

from kwire.handlers._shared.authorization import allows
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    if not allows(broker, context, Operation.ALTER, ResourceType.CLUSTER):
        refused = DeleteAclsFilterResult(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
