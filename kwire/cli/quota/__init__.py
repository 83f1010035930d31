"""`kwire quota`: limits for users, clients and addresses. `kwire.admin.quotas` does the work, `commands.py` prints.

The commands import their modules when they run, so that they do not slow down the start of a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from kwire.cli.reaching import ClusterCommands, Reach, client_options, json_option

SET_EPILOG = """\b
Examples:
  kwire quota set --user alice --producer-byte-rate 1048576
  kwire quota set --user alice --client-id report --consumer-byte-rate 5e6
  kwire quota set --default-user --request-percentage 50
  kwire quota set --ip 10.0.0.7 --connection-creation-rate 10
"""

LIST_EPILOG = """\b
Examples:
  kwire quota list
  kwire quota list --json | jq 'select(.user == "alice")'
"""

DELETE_EPILOG = """\b
Examples:
  kwire quota delete --user alice
  kwire quota delete --user alice --key producer_byte_rate
"""


def _entities(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--default-ip", is_flag=True, help="Every address that has none of its own."),
        click.option("--ip", metavar="ADDRESS", help="Address that connections come from."),
        click.option("--default-client-id", is_flag=True, help="Every client id that has none of its own."),
        click.option("--client-id", metavar="ID", help="Client id; with a user, of that user only."),
        click.option("--default-user", is_flag=True, help="Every user that has none of its own."),
        click.option("--user", metavar="USER", help="User."),
    ):
        command = option(command)
    return command


@click.group(cls=ClusterCommands)
def quota() -> None:
    """Show and change how much users, clients and addresses may use of each broker.

    Works with kwire and with any Kafka cluster from version 2.6 on. Whoever exceeds a quota is not refused, but has to
    wait.
    """


@quota.command("set", epilog=SET_EPILOG, short_help="Set quotas.")
@client_options
@_entities
@click.option("--producer-byte-rate", type=float, metavar="BYTES", help="Bytes per second produced to a broker.")
@click.option("--consumer-byte-rate", type=float, metavar="BYTES", help="Bytes per second fetched from a broker.")
@click.option("--request-percentage", type=float, metavar="PERCENT", help="Share of a broker's threads; 100 is one.")
@click.option(
    "--controller-mutation-rate", type=float, metavar="NUMBER", help="Partitions created or deleted a second."
)
@click.option("--connection-creation-rate", type=float, metavar="NUMBER", help="With an address: connections a second.")
def set_(reach: Reach, **given: Any) -> None:
    """Set some quotas of a user, a client id, both together, or an address. The others stay as they are."""
    from kwire.cli.quota import commands

    commands.set_(reach, **given)


@quota.command("list", epilog=LIST_EPILOG, short_help="List quotas.")
@client_options
@json_option
def list_(reach: Reach, as_json: bool) -> None:
    """List all quotas."""
    from kwire.cli.quota import commands

    commands.list_(reach, as_json=as_json)


@quota.command(epilog=DELETE_EPILOG, short_help="Delete quotas.")
@client_options
@_entities
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only this one, as list calls it. Repeatable.")
def delete(reach: Reach, **given: Any) -> None:
    """Delete all quotas of a user, a client id, both together, or an address, or some of them."""
    from kwire.cli.quota import commands

    commands.delete(reach, **given)
