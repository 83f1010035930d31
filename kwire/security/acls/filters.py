"""The filters for ACLs in DescribeAcls and DeleteAcls: Kafka's AclBindingFilter.

    pattern type   the ACL's name
    ANY            is the filter's name
    MATCH          is the filter's name, or a prefix of it, or the wildcard: all that apply to a resource of that name
    LITERAL        is the filter's name, in a literal ACL
    PREFIXED       is the filter's name, in a prefixed ACL

A filter without a name, principal or host matches any.
"""

from __future__ import annotations

import attrs

from kwire.security.acls.acl import ANY, OPERATIONS, PERMISSIONS, RESOURCE_TYPES, WILDCARD, Acl, PatternType


@attrs.frozen
class AclFilter:
    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    @property
    def has_unknown_pattern(self) -> bool:
        """True if the filter has a resource type or a pattern type that does not exist."""
        return self.resource_type not in {ANY, *RESOURCE_TYPES} or self.pattern_type not in {ANY, *PatternType}

    @property
    def has_unknown_entry(self) -> bool:
        """True if the filter has an operation or a permission that does not exist."""
        return self.operation not in {ANY, *OPERATIONS} or self.permission not in {ANY, *PERMISSIONS}

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.pattern_type in (ANY, PatternType.MATCH, acl.pattern_type)
            and (self.name is None or self._names(acl))
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        assert self.name is not None
        if self.pattern_type != PatternType.MATCH or self.name == acl.resource_name:
            return self.name == acl.resource_name
        if acl.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD
