"""DescribeAcls: v1-3.

* v1: pattern types (KIP-290)
* v2: flexible
* v3: resources of the type user (KIP-373)

Returns the ACLs that the filter matches, by resource. A filter with a number that has no meaning matches none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

from kwire.handlers._shared.acls import check_known, standard_authorizer
from kwire.security.acls.filters import AclFilter
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.security.acls.acl import Acl


def handle(authorization: Authorization, request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    check_known(wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission)
    try:
        authorization.check(context, Operation.DESCRIBE, ResourceType.CLUSTER)
        authorizer = standard_authorizer(authorization)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    return DescribeAclsResponse(resources=_by_resource(authorizer.matching(wanted)))


def _by_resource(acls: Iterable[Acl]) -> list[DescribeAclsResource]:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in acls:
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(*key)
        resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission))
    return list(resources.values())
