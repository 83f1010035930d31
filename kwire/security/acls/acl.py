"""An ACL allows or denies a principal an operation on resources (Kafka's AclBinding).

The numbers are those of requests and records. A record may have numbers that this version does not support. Such an ACL
is kept, and applies to no requester.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

import attrs
from kwire_protocol.internal.metadata_security import AccessControlEntryRecord
from kwire_protocol.wire import Uuid

from kwire.security.authorizer import Operation, ResourceType

UNKNOWN: Final = 0
"""The number, in a request, of no valid resource type, pattern type, operation or permission."""

ANY: Final = 1
"""The number, in a filter, of all resource types, pattern types, operations or permissions."""

ALL: Final = 2
"""The operation of an ACL for all operations."""

WILDCARD: Final = "*"
"""All resources of the type, as a literal resource name; all hosts, as a host."""

EVERYBODY: Final = "User:*"
"""The principal of an ACL that is for everyone."""

OPERATIONS: Final = frozenset({ALL, *Operation})
RESOURCE_TYPES: Final = frozenset(ResourceType)


class PatternType(IntEnum):
    """The way in which an ACL's resource name is matched; `MATCH` only in filters."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


PATTERN_TYPES: Final = frozenset({PatternType.LITERAL, PatternType.PREFIXED})
PERMISSIONS: Final = frozenset(Permission)

Enum = TypeVar("Enum", bound=IntEnum)


@attrs.frozen(cache_hash=True)
class Acl:
    """An ACL. Adding an ACL that equals an existing one changes nothing."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    """The principal, for example User:alice."""
    host: str
    operation: int
    permission: int

    @classmethod
    def of_record(cls, record: AccessControlEntryRecord) -> Acl:
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def record(self, acl_id: Uuid) -> AccessControlEntryRecord:
        return AccessControlEntryRecord(
            id=acl_id,
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )

    def __str__(self) -> str:
        """Returns a text such as ALLOW READ on TOPIC orders- (PREFIXED) to User:alice from *."""
        operation = "ALL" if self.operation == ALL else name_of(Operation, self.operation)
        return (
            f"{name_of(Permission, self.permission)} {operation} on {name_of(ResourceType, self.resource_type)} "
            f"{self.resource_name} ({name_of(PatternType, self.pattern_type)}) to {self.principal} from {self.host}"
        )


def name_of(kind: type[Enum], number: int) -> str:
    """Returns the name of a number on the wire; UNKNOWN if it has none."""
    try:
        return kind(number).name
    except ValueError:
        return "UNKNOWN"
