"""`kwire acl add`, `list`, `delete` and `check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kwire.admin.acls import create_acls, delete_acls, in_order, list_acls
from kwire.admin.configs import broker_configs
from kwire.cli.acl.arguments import Resources, new_acls, operation_number, principal_of, resource_type_of
from kwire.cli.columns import Row, printable, show
from kwire.cli.reaching import Reach
from kwire.client.cluster import Cluster
from kwire.security.acls.acl import ALL, ANY, Acl, PatternType, Permission, name_of
from kwire.security.acls.filters import AclFilter
from kwire.security.acls.standard_authorizer import StandardAuthorizer, Verdict
from kwire.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kwire.security.principal import Principal, Requester, parse_principals

_COLUMNS = {
    "number": "#",
    "permission": "PERMISSION",
    "principal": "PRINCIPAL",
    "host": "HOST",
    "operation": "OPERATION",
    "resource_type": "TYPE",
    "resource_name": "NAME",
    "pattern_type": "PATTERN",
}


def add(
    reach: Reach,
    *,
    allowed: Sequence[str],
    denied: Sequence[str],
    operations: Sequence[str],
    producer: bool,
    consumer: bool,
    prefixed: bool,
    hosts: Sequence[str],
    **resources: Any,
) -> None:
    acls = new_acls(
        Resources(**resources),
        allowed=allowed,
        denied=denied,
        operations=operations,
        producer=producer,
        consumer=consumer,
        prefixed=prefixed,
        hosts=hosts,
    )
    with reach.cluster() as cluster:
        create_acls(cluster, acls)
    for acl in acls:
        click.echo(printable(f"added: {acl}"))


def list_(reach: Reach, *, principal: str | None, as_json: bool, **resources: Any) -> None:
    with reach.cluster() as cluster:
        everything = list_acls(cluster, AclFilter())
    chosen = Resources(**resources)
    found = [
        (number, acl)
        for number, acl in enumerate(everything, start=1)
        if any(it.matches(acl) for it in _filters(chosen, PatternType.MATCH, principal))
    ]
    if not found and not as_json:
        click.echo("there is no such ACL" if principal or list(chosen) else "there are no ACLs")
        return
    show([_row(number, acl) for number, acl in found], _COLUMNS, as_json=as_json)


def delete(
    reach: Reach,
    *,
    operations: Sequence[str],
    principal: str | None,
    prefixed: bool,
    host: str | None,
    yes: bool,
    **resources: Any,
) -> None:
    chosen = Resources(**resources)
    if not (list(chosen) or operations or principal or host):
        raise click.UsageError("say which: --topic, --group, ..., --principal, --operation or --host")
    pattern = PatternType.PREFIXED if prefixed else ANY
    filters = [
        AclFilter(it.resource_type, it.name, it.pattern_type, it.principal, host, number)
        for it in _filters(chosen, pattern, principal)
        for number in ([operation_number(name) for name in operations] or [ANY])
    ]
    with reach.cluster() as cluster:
        found = in_order({acl for which in filters for acl in list_acls(cluster, which)})
        if not found:
            click.echo("there is no such ACL")
            return
        if not yes:
            for acl in found:
                click.echo(printable(str(acl)), err=True)
            click.confirm(
                f"delete {'this ACL' if len(found) == 1 else f'these {len(found)} ACLs'}?", abort=True, err=True
            )
        deleted = {acl for which in filters for acl in delete_acls(cluster, which)}
    for acl in in_order(deleted):
        click.echo(printable(f"deleted: {acl}"))


def check(
    reach: Reach, *, principal: str, operation: str, resource_type: str, name: str | None, host: str, as_json: bool
) -> None:
    kind, wanted = resource_type_of(resource_type), Operation(operation_number(operation))
    if name is None:
        if kind is not ResourceType.CLUSTER:
            raise click.UsageError(f"say which {resource_type}: its name is missing")
        name = CLUSTER_NAME
    whom = principal_of(principal)
    with reach.cluster() as cluster:
        acls = list_acls(cluster, AclFilter())
        authorizer = _authorizer(cluster, acls)
    type_, _, user = whom.partition(":")
    verdict = authorizer.explain(Requester(Principal(type_, user), host), wanted, kind, name)
    number = acls.index(verdict.acl) + 1 if verdict.acl is not None else None
    if as_json:
        row: Row = {
            "principal": whom,
            "host": host,
            "operation": wanted.name,
            "resource_type": kind.name,
            "resource_name": name,
            "allowed": verdict.allowed,
            "reason": verdict.rule.name,
            "rule": number,
        }
        show([row], {}, as_json=True)
    else:
        question = f"may {principal} {operation} {resource_type} {name} from {host}?"
        click.echo(printable(f"{question} {'yes' if verdict.allowed else 'no'}, {_reason(verdict, number)}"))
    if not verdict.allowed:
        raise SystemExit(1)


def _authorizer(cluster: Cluster, acls: Sequence[Acl]) -> StandardAuthorizer:
    configs = broker_configs(cluster, ("super.users", "allow.everyone.if.no.acl.found"))
    authorizer = StandardAuthorizer(
        parse_principals(configs.get("super.users") or ""),
        (configs.get("allow.everyone.if.no.acl.found") or "").lower() == "true",
    )
    authorizer.change(acls, ())
    return authorizer


def _reason(verdict: Verdict, number: int | None) -> str:
    return f"because {verdict.rule.value}" if number is None else f"by rule {number}: {verdict.acl}"


def _filters(resources: Resources, pattern: int, principal: str | None) -> list[AclFilter]:
    whom = None if principal is None else principal_of(principal)
    return [AclFilter(kind, name, pattern, whom) for kind, name in resources] or [
        AclFilter(pattern_type=ANY if pattern == PatternType.MATCH else pattern, principal=whom)
    ]


def _row(number: int, acl: Acl) -> Row:
    return {
        "number": number,
        "permission": name_of(Permission, acl.permission),
        "principal": acl.principal,
        "host": acl.host,
        "operation": "ALL" if acl.operation == ALL else name_of(Operation, acl.operation),
        "resource_type": name_of(ResourceType, acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": name_of(PatternType, acl.pattern_type),
    }
