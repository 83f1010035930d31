"""An index of ACLs. A query or a change costs a few look-ups, regardless of the number of ACLs.

A resource's name is looked up as it is, as the wildcard, and once for each length of prefixes that there are: at most
as often as the name is long. Within a resource, an ACL is found by its principal, host, operation and permission. No
list is searched.

`_kinds` is the reverse index: all names for which a principal has a permission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from kwire.security.acls.acl import WILDCARD, Acl, PatternType

Who = tuple[str, str]
"""The principal and the host of an ACL."""

Right = tuple[int, int]
"""The permission and the operation of an ACL."""

Pattern = tuple[int, str]
"""The type and the text of a pattern for names."""

Rights = Mapping[Who, Mapping[Right, Sequence[Acl]]]
"""Several ACLs have the same principal, host, permission and operation only if they spell the host differently."""


@attrs.define(eq=False)
class AclIndex:
    _counts: dict[Acl, int] = attrs.field(factory=dict)
    """The number of records of each ACL. An ACL may be recorded under several ids; it is removed with the last one."""
    _patterns: dict[tuple[int, Pattern], dict[Who, dict[Right, list[Acl]]]] = attrs.field(factory=dict)
    """The ACLs by resource type and pattern."""
    _lengths: dict[int, Counter[int]] = attrs.field(factory=dict)
    """The number of prefixes of each length, by resource type."""
    _kinds: dict[tuple[int, Who, Right], dict[Pattern, None]] = attrs.field(factory=dict)
    """The patterns by resource type, principal, host, permission and operation."""

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._counts)

    def add(self, acl: Acl) -> None:
        count = self._counts.get(acl, 0)
        self._counts[acl] = count + 1
        if count:
            return
        who, right, pattern = _keys(acl)
        key = (acl.resource_type, pattern)
        rights = self._patterns.get(key)
        if rights is None:
            rights = self._patterns[key] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                self._lengths.setdefault(acl.resource_type, Counter())[len(acl.resource_name)] += 1
        rights.setdefault(who, {}).setdefault(right, []).append(acl)
        self._kinds.setdefault((acl.resource_type, who, right), {})[pattern] = None

    def remove(self, acl: Acl) -> None:
        """Raises KeyError if it is not there."""
        self._counts[acl] -= 1
        if self._counts[acl]:
            return
        del self._counts[acl]
        who, right, pattern = _keys(acl)
        key = (acl.resource_type, pattern)
        rights = self._patterns[key]
        rights[who][right].remove(acl)
        if rights[who][right]:
            return
        del rights[who][right]
        if not rights[who]:
            del rights[who]
        if not rights:
            del self._patterns[key]
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._lengths[acl.resource_type]
                lengths[len(acl.resource_name)] -= 1
                if not lengths[len(acl.resource_name)]:
                    del lengths[len(acl.resource_name)]
        patterns = self._kinds[acl.resource_type, who, right]
        del patterns[pattern]
        if not patterns:
            del self._kinds[acl.resource_type, who, right]

    def concerning(self, resource_type: int, name: str) -> list[Rights]:
        """Returns the ACLs of each pattern that matches a resource: its name, its prefixes, longest first, and `*`."""
        patterns = [(PatternType.LITERAL, name)]
        lengths = self._lengths.get(resource_type)
        if lengths:
            patterns += [(PatternType.PREFIXED, name[:it]) for it in sorted(lengths, reverse=True) if it <= len(name)]
        if name != WILDCARD:
            patterns.append((PatternType.LITERAL, WILDCARD))
        found = (self._patterns.get((resource_type, pattern)) for pattern in patterns)
        return [rights for rights in found if rights is not None]

    def patterns(self, resource_type: int, who: Who, right: Right) -> Collection[Pattern]:
        """Returns the patterns of all ACLs for that principal and host, with that permission for that operation."""
        return self._kinds.get((resource_type, who, right), {}).keys()


def _keys(acl: Acl) -> tuple[Who, Right, Pattern]:
    who = (acl.principal, canonical_host(acl.host))
    return who, (acl.permission, acl.operation), (acl.pattern_type, acl.resource_name)


def canonical_host(text: str) -> str:
    """Returns the canonical form of an IPv6 address: Java writes all zeros, and Python and people omit them.

    An IPv4-mapped IPv6 address becomes the IPv4 address. Any other text is unchanged.
    """
    if ":" not in text:
        return text
    from ipaddress import AddressValueError, IPv6Address  # few brokers need it

    try:
        address = IPv6Address(text)
    except AddressValueError:
        return text
    return str(address.ipv4_mapped or address)
