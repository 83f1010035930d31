"""DeleteAcls: v1-3.

* v1: pattern types (KIP-290)
* v2: flexible
* v3: resources of the type user (KIP-373)

This broker has removed the ACLs when the response is sent. The rules are in `kwire.metadata.controller.access.acls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

from kwire.handlers._shared.acls import check_known, standard_authorizer
from kwire.metadata.controller.access.acls import delete_acls
from kwire.security.acls.filters import AclFilter
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.controller.access.acls import Deletion
    from kwire.metadata.service import MetadataService
    from kwire.security.acls.acl import Acl


async def handle(
    metadata: MetadataService, authorization: Authorization, request: DeleteAclsRequest, context: Context
) -> DeleteAclsResponse:
    filters = [
        AclFilter(
            it.resource_type_filter,
            it.resource_name_filter,
            it.pattern_type_filter,
            it.principal_filter,
            it.host_filter,
            it.operation,
            it.permission_type,
        )
        for it in request.filters
    ]
    for each in filters:
        check_known(each.resource_type, each.pattern_type, each.operation, each.permission)
    try:
        authorization.check(context, Operation.ALTER, ResourceType.CLUSTER)
        standard_authorizer(authorization)
        deletions = await metadata.change(delete_acls, filters)
    except KafkaError as error:
        return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error.code, error.message)] * len(filters))
    return DeleteAclsResponse(filter_results=[_result(it) for it in deletions])


def _result(deletion: Deletion) -> DeleteAclsFilterResult:
    if deletion.refusal is not None:
        return DeleteAclsFilterResult(deletion.refusal.code, deletion.refusal.message)
    return DeleteAclsFilterResult(error_message=None, matching_acls=[_matching(acl) for acl in deletion.acls])


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
