"""Decides on CreateAcls and DeleteAcls. The rules are those of Kafka's AclApis and AclControlManager.

Each ACL of a request is created or refused independently; one that exists already counts as created. A filter deletes
all ACLs that it matches, and its result lists them. It also matches what earlier filters of the request delete, so an
ACL may be in several results.

As in Kafka, an ACL with a type, operation or permission that is valid only in filters (ANY, MATCH) fails the whole
request (UNKNOWN_SERVER_ERROR), while an unknown number fails only that ACL (INVALID_REQUEST).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_security import RemoveAccessControlEntryRecord
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.wire import Uuid

from kwire.metadata.controller.deciding import MAX_RECORDS_PER_REQUEST, ClusterState, Records
from kwire.security.acls.acl import (
    ANY,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    WILDCARD,
    Acl,
    PatternType,
)
from kwire.security.acls.filters import AclFilter
from kwire.security.authorizer import CLUSTER_NAME, ResourceType

MAX_DELETED_ACLS: Final = 100_000
"""The maximum number of deleted ACLs in the response to one request, in which each filter lists all its matches."""

Refusal = KafkaError | None
"""The reason why an ACL was not created; None if it was created, or existed before."""


def create_acls(state: ClusterState, acls: Sequence[Acl]) -> tuple[Records, list[Refusal]]:
    """Creates ACLs, or none on KafkaError: POLICY_VIOLATION (too many new ACLs), UNKNOWN_SERVER_ERROR."""
    for acl in acls:
        _check_no_filter(acl)
    existing = state.image.access.existing_acls
    refusals: list[Refusal] = []
    new: dict[Acl, None] = {}
    for acl in acls:
        refusal = _why_not(acl)
        refusals.append(refusal)
        if refusal is None and acl not in existing:
            new[acl] = None
    if len(new) > MAX_RECORDS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Unable to perform excessively large batch operation: {len(new)} new ACLs. Send several requests of at "
            f"most {MAX_RECORDS_PER_REQUEST}.",
        )
    return [acl.record(state.new_id()) for acl in new], refusals


def _check_no_filter(acl: Acl) -> None:
    for value, what in (
        (acl.resource_type, "resourceType"),
        (acl.operation, "operation"),
        (acl.permission, "permissionType"),
        (acl.pattern_type, "patternType"),
    ):
        if value == ANY:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what} must not be ANY")
    if acl.pattern_type == PatternType.MATCH:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "patternType must not be MATCH")


def _why_not(acl: Acl) -> Refusal:
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        return _invalid("Invalid empty resource name")
    for value, known, what in (
        (acl.resource_type, RESOURCE_TYPES, "resourceType"),
        (acl.pattern_type, PATTERN_TYPES, "patternType"),
        (acl.operation, OPERATIONS, "operation"),
        (acl.permission, PERMISSIONS, "permissionType"),
    ):
        if value not in known:
            return _invalid(f"Invalid {what} UNKNOWN")
    if ":" not in acl.principal:
        return _invalid(
            f"Could not parse principal from {quoted(acl.principal)} (no colon is present separating the principal "
            "type from the principal name)"
        )
    return None


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


@attrs.frozen
class Deletion:
    """The result of a filter: the ACLs that it deleted, or the reason why it was refused."""

    acls: list[Acl] = attrs.field(factory=list)
    refusal: KafkaError | None = None


def delete_acls(state: ClusterState, filters: Sequence[AclFilter]) -> tuple[Records, list[Deletion]]:
    """Deletes ACLs by filters. Raises KafkaError(INVALID_REQUEST) for too many ACLs: then none is deleted."""
    search = _Search.of(state)
    deleted: dict[Uuid, None] = {}
    deletions: list[Deletion] = []
    match_count = 0
    for each in filters:
        if each.has_unknown_pattern or each.has_unknown_entry:
            which = "patternFilter" if each.has_unknown_pattern else "entryFilter"
            deletions.append(Deletion(refusal=_invalid(f"Unknown {which}.")))
            continue
        matching = search.matching(each)
        match_count += len(matching)
        deleted.update(dict.fromkeys(acl_id for acl_id, _ in matching))
        if len(deleted) > MAX_RECORDS_PER_REQUEST:
            raise _invalid(f"Cannot remove more than {MAX_RECORDS_PER_REQUEST} acls in a single delete operation.")
        if match_count > MAX_DELETED_ACLS:
            raise _invalid(
                f"The filters match more than {MAX_DELETED_ACLS} ACLs, many of them repeatedly: send fewer filters."
            )
        deletions.append(Deletion([acl for _, acl in matching]))
    return [RemoveAccessControlEntryRecord(acl_id) for acl_id in deleted], deletions


Found = Sequence[tuple[Uuid, Acl]]


@attrs.frozen
class _Search:
    """Finds the ACLs of many filters among many ACLs.

    A filter is compared only with the ACLs that have its name, its principal or its host, whichever are fewest. Few
    different filters have none of the three, and equal filters are compared once.
    """

    all: Found
    by_name: dict[str, list[tuple[Uuid, Acl]]]
    by_principal: dict[str, list[tuple[Uuid, Acl]]]
    by_host: dict[str, list[tuple[Uuid, Acl]]]
    lengths: set[int] = attrs.field(factory=set)
    """The lengths of the resource names."""
    known: dict[AclFilter, Found] = attrs.field(factory=dict)

    @classmethod
    def of(cls, state: ClusterState) -> _Search:
        every = [(acl_id, Acl.of_record(record)) for acl_id, record in state.image.access.acls.items()]
        search = cls(every, {}, {}, {})
        for found in every:
            search.by_name.setdefault(found[1].resource_name, []).append(found)
            search.by_principal.setdefault(found[1].principal, []).append(found)
            search.by_host.setdefault(found[1].host, []).append(found)
            search.lengths.add(len(found[1].resource_name))
        return search

    def matching(self, wanted: AclFilter) -> Found:
        matching = self.known.get(wanted)
        if matching is None:
            candidates = min(self._candidates(wanted), key=len)
            matching = self.known[wanted] = [found for found in candidates if wanted.matches(found[1])]
        return matching

    def _candidates(self, wanted: AclFilter) -> Iterable[Collection[tuple[Uuid, Acl]]]:
        yield self.all
        if wanted.principal is not None:
            yield self.by_principal.get(wanted.principal, ())
        if wanted.host is not None:
            yield self.by_host.get(wanted.host, ())
        if wanted.name is not None and wanted.pattern_type != PatternType.MATCH:
            yield self.by_name.get(wanted.name, ())
        elif wanted.name is not None:
            prefixes = {wanted.name[:length] for length in self.lengths}
            yield [found for name in {WILDCARD, *prefixes} for found in self.by_name.get(name, ())]
