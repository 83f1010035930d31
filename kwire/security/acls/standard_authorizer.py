"""The authorizer that uses ACLs: Kafka's org.apache.kafka.metadata.authorizer.StandardAuthorizer.

A check has a requester, an operation, and a resource. The first rule that applies decides it:

    1  the requester's principal is a super user                     allowed
    2  an ACL of the resource denies it to the requester             denied
    3  an ACL of the resource allows it to the requester             allowed
    4  the resource has ACLs, none of which applies                  denied
    5  the resource has no ACLs                                      decided by allow.everyone.if.no.acl.found

An ACL matches a resource by its literal name, by a prefix of it, or by the wildcard `*`. It is for a principal, or for
`User:*`, from one host or from all. Its operation is the requested one or ALL. An ACL that allows READ, WRITE, DELETE
or ALTER also allows DESCRIBE, and one that allows ALTER_CONFIGS also allows DESCRIBE_CONFIGS. An ACL that denies denies
only its own operation.

Decisions are cached for each requester until an ACL changes, or until there are too many of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from enum import Enum
from typing import Final

import attrs
from kwire_protocol.wire import Uuid

from kwire.security.acls.acl import ALL, EVERYBODY, WILDCARD, Acl, PatternType, Permission
from kwire.security.acls.filters import AclFilter
from kwire.security.acls.index import AclIndex, Who, canonical_host
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.principal import Requester

MAX_REMEMBERED: Final = 100_000
"""The maximum number of cached decisions of all requesters together. At the maximum the cache is cleared."""

MAX_REMEMBERED_NAME_LENGTH: Final = 256
"""The maximum length, in characters, of a name whose decision is cached. The name of a topic is shorter."""

_IMPLYING: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""The operations that imply each key: a requester that is allowed one of them is allowed the key as well."""

_ANY_NAME: Final = "hardcode"
"""The resource name that Kafka checks first, before it searches for an allowed one."""


class Rule(Enum):
    """The rule that decided."""

    SUPER_USER = "the principal is a super user"
    ACL = "an ACL says so"
    NO_MATCH = "the resource has ACLs, and none of them is about this"
    NO_ACL = "the resource has no ACL"


@attrs.frozen
class Verdict:
    """A decision, and its reason. `acl` is the ACL that decided, if any."""

    allowed: bool
    rule: Rule
    acl: Acl | None = None

    def __str__(self) -> str:
        return f"{'allowed' if self.allowed else 'denied'}: {self.acl or self.rule.value}"


@attrs.define(eq=False)
class _Memory:
    """The cache of one requester. `who` has the principals and hosts of the ACLs that apply to it."""

    is_super: bool
    who: tuple[Who, ...]
    decisions: dict[tuple[Operation, ResourceType, str | None], bool] = attrs.field(factory=dict)
    """The cached decisions. The name None means any resource of the type."""
    granted: dict[Operation, set[str | Uuid]] = attrs.field(factory=dict)


@attrs.define(eq=False)
class StandardAuthorizer:
    """An `Authorizer`. `super_users` are principals as text: User:admin."""

    super_users: frozenset[str]
    allows_if_no_acl: bool = False
    allows_all: bool = attrs.field(default=False, init=False)
    _acls: AclIndex = attrs.field(factory=AclIndex)
    _memories: dict[Requester, _Memory] = attrs.field(factory=dict)
    _remembered: int = 0

    # -- ACLs

    def __len__(self) -> int:
        """Returns the number of ACLs."""
        return len(self._acls)

    def change(self, added: Iterable[Acl], removed: Iterable[Acl]) -> None:
        """Adds ACLs, then removes ACLs: those in both are removed. Raises KeyError if one to remove does not exist."""
        for acl in added:
            self._acls.add(acl)
        for acl in removed:
            self._acls.remove(acl)
        self._forget()

    def matching(self, wanted: AclFilter) -> Iterator[Acl]:
        return (acl for acl in self._acls if wanted.matches(acl))

    # -- checks

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """See `Authorizer`."""
        memory = self._memories.get(requester)
        if memory is None:
            memory = self._remember(requester)
        decided = memory.decisions.get((operation, resource_type, name))
        if decided is not None:
            return decided
        decided = self._decide(memory, operation, resource_type, name).allowed
        if len(name) <= MAX_REMEMBERED_NAME_LENGTH:
            memory = self._room_for(requester)
            memory.decisions[operation, resource_type, name] = decided
        return decided

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """See `Authorizer`.

        As in Kafka, implied operations do not count here, and a literal name is not taken for one that a prefix could
        have.
        """
        memory = self._memories.get(requester)
        if memory is None:
            memory = self._remember(requester)
        decided = memory.decisions.get((operation, resource_type, None))
        if decided is None:
            decided = self.allows(requester, operation, resource_type, _ANY_NAME) or self._allows_some(
                memory, operation, resource_type
            )
            self._room_for(requester).decisions[operation, resource_type, None] = decided
        return decided

    def explain(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> Verdict:
        """Returns the decision of `allows`, with its reason. It is not cached."""
        return self._decide(self._new_memory(requester), operation, resource_type, name)

    def granted(self, requester: Requester, operation: Operation) -> Set[str | Uuid]:
        """See `Authorizer`."""
        memory = self._memories.get(requester)
        if memory is None:
            memory = self._remember(requester)
        topics = memory.granted.get(operation)
        if topics is None:
            topics = memory.granted[operation] = set()
        return topics

    def grant(self, requester: Requester, operation: Operation, topic: str | Uuid) -> None:
        """See `Authorizer`."""
        if len(topic) <= MAX_REMEMBERED_NAME_LENGTH:
            self._room_for(requester).granted.setdefault(operation, set()).add(topic)

    def _decide(self, memory: _Memory, operation: Operation, resource_type: ResourceType, name: str) -> Verdict:
        if memory.is_super:
            return Verdict(True, Rule.SUPER_USER)
        concerning = self._acls.concerning(resource_type, name)
        mine = [rights for each in concerning for who in memory.who if (rights := each.get(who)) is not None]
        for permission, operations in (
            (Permission.DENY, (operation, ALL)),
            (Permission.ALLOW, (operation, ALL, *_IMPLYING.get(operation, ()))),
        ):
            for rights in mine:
                for each in operations:
                    acls = rights.get((permission, each))
                    if acls is not None:
                        return Verdict(permission is Permission.ALLOW, Rule.ACL, acls[0])
        if concerning:
            return Verdict(False, Rule.NO_MATCH)
        return Verdict(self.allows_if_no_acl, Rule.NO_ACL)

    def _allows_some(self, memory: _Memory, operation: Operation, resource_type: ResourceType) -> bool:
        """Returns True if there is an allowed pattern that no denied pattern covers."""
        denied, allowed = (
            {
                pattern
                for who in memory.who
                for each in (operation, ALL)
                for pattern in self._acls.patterns(resource_type, who, (permission, each))
            }
            for permission in (Permission.DENY, Permission.ALLOW)
        )
        wildcard = (PatternType.LITERAL, WILDCARD)
        if wildcard in denied:
            return False
        if wildcard in allowed:
            return True
        lengths = {len(name) for kind, name in denied if kind == PatternType.PREFIXED}

        def is_covered(name: str) -> bool:
            return any((PatternType.PREFIXED, name[:it]) in denied for it in lengths)

        return any(pattern not in denied and not is_covered(pattern[1]) for pattern in allowed)

    # -- the cache

    def _new_memory(self, requester: Requester) -> _Memory:
        principal = str(requester.principal)
        hosts = (canonical_host(requester.host), WILDCARD)
        return _Memory(
            is_super=principal in self.super_users,
            who=tuple(dict.fromkeys((it, host) for it in (principal, EVERYBODY) for host in hosts)),
        )

    def _remember(self, requester: Requester) -> _Memory:
        self._room_for_one()
        memory = self._memories[requester] = self._new_memory(requester)
        return memory

    def _room_for(self, requester: Requester) -> _Memory:
        """Returns the cache of the requester, with room for one more decision."""
        self._room_for_one()
        memory = self._memories.get(requester)
        return self._remember(requester) if memory is None else memory

    def _room_for_one(self) -> None:
        if self._remembered >= MAX_REMEMBERED:
            self._forget()
        self._remembered += 1

    def _forget(self) -> None:
        """Clears the cache. Sets of granted topics are emptied, too, since a request that waits may refer to one.

        Nothing is added to such a set any more.
        """
        for memory in self._memories.values():
            for topics in memory.granted.values():
                topics.clear()
        self._memories.clear()
        self._remembered = 0
