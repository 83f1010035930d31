"""Adds, lists and deletes the ACLs of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
from kwire_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kwire_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kwire_protocol.messages.describe_acls import DescribeAclsRequest

from kwire.admin.batches import batches
from kwire.client.cluster import Cluster
from kwire.client.errors import refused
from kwire.security.acls.acl import Acl
from kwire.security.acls.filters import AclFilter


def in_order(acls: Iterable[Acl]) -> list[Acl]:
    """Returns the ACLs by resource, then by principal: the order in which people read them."""
    return sorted(acls, key=attrs.astuple)


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Adds ACLs; one that exists already changes nothing. Raises Refused for the first that is not accepted."""
    for some in batches(acls):
        creations = [
            AclCreation(
                resource_type=it.resource_type,
                resource_name=it.resource_name,
                resource_pattern_type=it.pattern_type,
                principal=it.principal,
                host=it.host,
                operation=it.operation,
                permission_type=it.permission,
            )
            for it in some
        ]
        answer = cluster.call(CreateAclsRequest(creations), at_least=1)
        for acl, result in zip(some, answer.results, strict=True):
            if result.error_code:
                raise refused(f"the ACL was not added: {acl}", result.error_code, result.error_message)


def list_acls(cluster: Cluster, which: AclFilter) -> list[Acl]:
    """Returns the matching ACLs, sorted. Raises Refused: SECURITY_DISABLED if the brokers have no authorizer."""
    answer = cluster.call(
        DescribeAclsRequest(
            which.resource_type,
            which.name,
            which.pattern_type,
            which.principal,
            which.host,
            which.operation,
            which.permission,
        ),
        at_least=1,
    )
    if answer.error_code:
        raise refused("the ACLs cannot be listed", answer.error_code, answer.error_message)
    return in_order(
        Acl(
            of.resource_type,
            of.resource_name,
            of.pattern_type,
            it.principal,
            it.host,
            it.operation,
            it.permission_type,
        )
        for of in answer.resources
        for it in of.acls
    )


def delete_acls(cluster: Cluster, which: AclFilter) -> list[Acl]:
    """Returns those that were deleted, sorted. Raises Refused if they, or one of them, could not be."""
    filter_ = DeleteAclsFilter(
        which.resource_type,
        which.name,
        which.pattern_type,
        which.principal,
        which.host,
        which.operation,
        which.permission,
    )
    [result] = cluster.call(DeleteAclsRequest([filter_]), at_least=1).filter_results
    if result.error_code:
        raise refused("the ACLs were not deleted", result.error_code, result.error_message)
    deleted = []
    for it in result.matching_acls:
        acl = Acl(
            it.resource_type,
            it.resource_name,
            it.pattern_type,
            it.principal,
            it.host,
            it.operation,
            it.permission_type,
        )
        if it.error_code:
            raise refused(f"the ACL was not deleted: {acl}", it.error_code, it.error_message)
        deleted.append(acl)
    return in_order(deleted)
