"""ACLs, arranged so that a question costs a few look-ups, however many there are, and a change costs as little.

A resource's name is looked up as it is, as the wildcard, and once for each length of prefixes that there are: at most
as often as the name is long. Within a resource, an ACL is found by whom it is for, what it is about, and whether it
denies. No list is searched.

`_kinds` finds them the other way round: all names for which somebody has a permission.
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
"""There are several ACLs for the same only if they spell the same host differently."""


@attrs.define(eq=False)
class AclIndex:
    _counts: dict[Acl, int] = attrs.field(factory=dict)
    """The same ACL may be recorded under several ids. It goes with the last of them."""
    _patterns: dict[tuple[int, Pattern], dict[Who, dict[Right, list[Acl]]]] = attrs.field(factory=dict)
    """By type of resource and pattern."""
    _lengths: dict[int, Counter[int]] = attrs.field(factory=dict)
    """By type of resource, how many prefixes of each length there are."""
    _kinds: dict[tuple[int, Who, Right], dict[Pattern, None]] = attrs.field(factory=dict)
    """By type of resource."""

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
        """The ACLs of a resource, by the pattern that it meets: its name, its prefixes, the longest first, and `*`."""
        patterns = [(PatternType.LITERAL, name)]
        lengths = self._lengths.get(resource_type)
        if lengths:
            patterns += [(PatternType.PREFIXED, name[:it]) for it in sorted(lengths, reverse=True) if it <= len(name)]
        if name != WILDCARD:
            patterns.append((PatternType.LITERAL, WILDCARD))
        found = (self._patterns.get((resource_type, pattern)) for pattern in patterns)
        return [rights for rights in found if rights is not None]

    def patterns(self, resource_type: int, who: Who, right: Right) -> Collection[Pattern]:
        """The patterns of all ACLs for that principal and host, with that permission for that operation."""
        return self._kinds.get((resource_type, who, right), {}).keys()


def _keys(acl: Acl) -> tuple[Who, Right, Pattern]:
    who = (acl.principal, canonical_host(acl.host))
    return who, (acl.permission, acl.operation), (acl.pattern_type, acl.resource_name)


def canonical_host(text: str) -> str:
    """One spelling for each IPv6 address: Java writes out all zeros, and Python and people leave them away.

    An IPv4 address in an IPv6 one is that IPv4 address. Anything else is what it is.
    """
    if ":" not in text:
        return text
    from ipaddress import AddressValueError, IPv6Address  # few brokers need it

    try:
        address = IPv6Address(text)
    except AddressValueError:
        return text
    return str(address.ipv4_mapped or address)
