"""`kwire acl`: the ACLs of a Kafka cluster with an authorizer. `kwire.admin.acls` does the work, `commands.py` prints.

The commands import their modules when they run, so that they do not slow down the start of a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from kwire.cli.reaching import ClusterCommands, Reach, client_options, json_option

ADD_EPILOG = """\b
Examples:
  kwire acl add --allow alice --operation read --topic orders
  kwire acl add --allow alice --consumer --topic orders --group kitchen
  kwire acl add --allow bob --producer --topic orders- --prefixed
  kwire acl add --deny mallory --operation all --topic '*' --host 10.0.0.7

\b
--producer stands for write, describe and create on the topics, --consumer for read and describe
on the topics and read on the groups.
"""

LIST_EPILOG = """\b
Examples:
  kwire acl list
  kwire acl list --topic orders                     all that concern this topic
  kwire acl list --principal alice --json
"""

DELETE_EPILOG = """\b
Examples:
  kwire acl delete --principal mallory
  kwire acl delete --topic orders --principal alice --operation read --yes
"""

CHECK_EPILOG = """\b
Examples:
  kwire acl check alice read topic orders --host 10.0.0.7
  kwire acl check User:CN=alice,OU=dev,O=kwire create cluster

\b
Exit code: 0 if it is allowed, 1 if it is denied. The rules have the numbers of `kwire acl list`.
"""

OPERATIONS = (
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
    "create-tokens",
    "describe-tokens",
    "two-phase-commit",
)
RESOURCE_TYPES = ("topic", "group", "cluster", "transactional-id", "delegation-token", "user")


def _resources(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--user-resource", "users", multiple=True, metavar="NAME", help="User, for tokens. Repeatable."),
        click.option(
            "--delegation-token", "delegation_tokens", multiple=True, metavar="ID", help="Delegation token. Repeatable."
        ),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option(
            "--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="Transactional id. Repeatable."
        ),
        click.option("--group", "groups", multiple=True, metavar="GROUP", help="Group, or '*' for all. Repeatable."),
        click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Topic, or '*' for all. Repeatable."),
    ):
        command = option(command)
    return command


def _operations(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--operation",
        "operations",
        multiple=True,
        type=click.Choice(OPERATIONS, case_sensitive=False),
        help="What is allowed or denied. Repeatable." if required else "Only ACLs about this. Repeatable.",
    )


@click.group(cls=ClusterCommands)
def acl() -> None:
    """Show and change who may do what.

    Works with kwire and with any Kafka cluster that has an authorizer. A principal is a user's name, such as alice, or
    a type and a name: User:alice. '*' is everybody.
    """


@acl.command(epilog=ADD_EPILOG, short_help="Allow or deny something.")
@client_options
@click.option("--allow", "allowed", multiple=True, metavar="PRINCIPAL", help="Who may do it. Repeatable.")
@click.option(
    "--deny", "denied", multiple=True, metavar="PRINCIPAL", help="Who may not, whatever allows it. Repeatable."
)
@_operations(required=True)
@click.option("--producer", is_flag=True, help="What a producer needs.")
@click.option("--consumer", is_flag=True, help="What a consumer needs.")
@_resources
@click.option("--prefixed", is_flag=True, help="The names are prefixes: all resources whose names begin so.")
@click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="Only from this address. Repeatable.")
def add(reach: Reach, **given: Any) -> None:
    """Add ACLs: one for each principal, operation, resource and host that is named.

    One that is there already is not added again.
    """
    from kwire.cli.acl import commands

    commands.add(reach, **given)


@acl.command("list", epilog=LIST_EPILOG, short_help="List ACLs.")
@client_options
@json_option
@_resources
@click.option("--principal", metavar="PRINCIPAL", help="Only those for this principal.")
def list_(reach: Reach, **given: Any) -> None:
    """List the ACLs that concern these resources, or all, with a number for each."""
    from kwire.cli.acl import commands

    commands.list_(reach, **given)


@acl.command(epilog=DELETE_EPILOG, short_help="Delete ACLs.")
@client_options
@_operations(required=False)
@_resources
@click.option("--principal", metavar="PRINCIPAL", help="Only those for this principal.")
@click.option("--prefixed", is_flag=True, help="Only those whose names are prefixes.")
@click.option("--host", metavar="ADDRESS", help="Only those for this address.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(reach: Reach, **given: Any) -> None:
    """Delete the ACLs with these names, principals, operations and hosts. What is not given may be any."""
    from kwire.cli.acl import commands

    commands.delete(reach, **given)


@acl.command(epilog=CHECK_EPILOG, short_help="Show whether a principal may do something, and why.")
@click.argument("principal", metavar="PRINCIPAL")
@click.argument("operation", type=click.Choice(OPERATIONS[1:], case_sensitive=False), metavar="OPERATION")
@click.argument("resource_type", type=click.Choice(RESOURCE_TYPES, case_sensitive=False), metavar="TYPE")
@click.argument("name", required=False)
@client_options
@json_option
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where the request comes from.")
def check(reach: Reach, **given: Any) -> None:
    """Show whether a principal may do something, and by which rule.

    OPERATION is what --operation of `kwire acl add` takes, but not all. TYPE is topic, group, cluster,
    transactional-id, delegation-token or user. The answer is worked out from the cluster's ACLs and settings. Nothing
    is tried.
    """
    from kwire.cli.acl import commands

    commands.check(reach, **given)
