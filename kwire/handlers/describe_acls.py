"""DescribeAcls: v1-3.

* v1: pattern types (KIP-290)
* v2: flexible
* v3: resources of the type user (KIP-373)

kwire has no authorizer, so there are no ACLs: the answer is SECURITY_DISABLED, as Kafka's is without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

from kwire.handlers._shared.authorization import allows
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    if not allows(broker, context, Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeAclsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
