"""Converts the options of `kwire acl` to resources, operations and ACLs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import attrs
import click

from kwire.security.acls.acl import ALL, WILDCARD, Acl, PatternType, Permission
from kwire.security.authorizer import CLUSTER_NAME, Operation, ResourceType

PRODUCER = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
CONSUMER = (Operation.READ, Operation.DESCRIBE)


@attrs.frozen
class Resources:
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    cluster: bool = False
    delegation_tokens: Sequence[str] = ()
    users: Sequence[str] = ()

    def __iter__(self) -> Iterator[tuple[ResourceType, str]]:
        for kind, names in (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ResourceType.CLUSTER, (CLUSTER_NAME,) if self.cluster else ()),
            (ResourceType.DELEGATION_TOKEN, self.delegation_tokens),
            (ResourceType.USER, self.users),
        ):
            yield from ((kind, name) for name in names)


def principal_of(text: str) -> str:
    """Returns the principal of a user's name: User:alice for alice. Raises UsageError."""
    if not text or text.endswith(":"):
        raise click.UsageError(f"{text!r} is not a principal: write a user's name, such as alice, or User:alice")
    kind, colon, _ = text.partition(":")
    return text if colon and kind.isalpha() else f"User:{text}"


def operation_number(name: str) -> int:
    return ALL if name.lower() == "all" else Operation[name.upper().replace("-", "_")]


def resource_type_of(name: str) -> ResourceType:
    return ResourceType[name.upper().replace("-", "_")]


def new_acls(
    resources: Resources,
    *,
    allowed: Sequence[str],
    denied: Sequence[str],
    operations: Sequence[str],
    producer: bool,
    consumer: bool,
    prefixed: bool,
    hosts: Sequence[str],
) -> list[Acl]:
    """The ACLs of `kwire acl add`, each once. Raises UsageError."""
    if not allowed and not denied:
        raise click.UsageError("say for whom: --allow PRINCIPAL or --deny PRINCIPAL")
    rights = dict.fromkeys(_rights(resources, [operation_number(it) for it in operations], producer, consumer))
    if not rights:
        raise click.UsageError("say what for: --topic, --group, ..., with --operation, --producer or --consumer")
    whom = [(Permission.ALLOW, it) for it in allowed] + [(Permission.DENY, it) for it in denied]
    return [
        Acl(
            kind,
            name,
            PatternType.PREFIXED if prefixed and kind is not ResourceType.CLUSTER else PatternType.LITERAL,
            principal_of(principal),
            host,
            operation,
            permission,
        )
        for (permission, principal), (kind, name, operation), host in product(whom, rights, hosts or (WILDCARD,))
    ]


def _rights(
    resources: Resources, operations: Sequence[int], producer: bool, consumer: bool
) -> Iterator[tuple[ResourceType, str, int]]:
    for kind, name in resources:
        wanted = list(operations)
        if producer and kind in (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID):
            wanted += PRODUCER if kind is ResourceType.TOPIC else PRODUCER[:2]
        if consumer and kind in (ResourceType.TOPIC, ResourceType.GROUP):
            wanted += CONSUMER if kind is ResourceType.TOPIC else CONSUMER[:1]
        if not wanted:
            raise click.UsageError(f"say what may be done to {kind.name.lower().replace('_', ' ')} {name}: --operation")
        yield from ((kind, name, it) for it in wanted)
