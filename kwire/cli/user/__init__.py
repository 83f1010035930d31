"""`kwire user`: the users of SCRAM. `kwire.admin.users` sends requests; `before_start.py` writes to a folder.

The commands import their modules when they run, so that they do not slow down the start of a broker.
"""

from __future__ import annotations

from pathlib import Path

import click

from kwire.cli.reaching import ClusterCommands, Reach, client_options, json_option

ADD_EPILOG = """\b
Examples:
  kwire user add alice                              asks for the password
  kwire user add alice < password.txt               takes the first line
  kwire user add admin --data-dir data              before the first start of a broker with that log dir
  kwire user add node --config server.properties    before the first start of the nodes of a cluster
  kwire user add alice --mechanism SCRAM-SHA-256 --iterations 8192

\b
A second password replaces the first one. Connections that are open stay open.
"""

LIST_EPILOG = """\b
Examples:
  kwire user list
  kwire user list --json | jq -r .user
"""

DELETE_EPILOG = """\b
Examples:
  kwire user delete alice
  kwire user delete alice --mechanism SCRAM-SHA-256 --yes
"""

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_mechanisms = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS, case_sensitive=False),
    help="Only for this mechanism. Repeatable. [default: both]",
)


@click.group(cls=ClusterCommands)
def user() -> None:
    """Add, list and delete users that log in with a password (SCRAM).

    Works with kwire and with any Kafka cluster from version 2.7 on. The users of the mechanism PLAIN are in a broker's
    configuration (sasl.jaas.config) instead.
    """


@user.command(epilog=ADD_EPILOG, short_help="Add a user, or change a password.")
@click.argument("name", metavar="USER")
@client_options
@_mechanisms
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16384),
    default=4096,
    show_default=True,
    help="How often the password is hashed.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Write to this log dir, which no broker uses now, instead of to a cluster. It is created if missing.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The same, for the broker with this server.properties: for a node of a cluster, too.",
)
def add(
    reach: Reach,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    data_dir: Path | None,
    config_file: Path | None,
) -> None:
    """Add a user, or give one another password.

    The password is read from the terminal, without showing it, or is the first line of standard input.
    """
    from kwire.cli.user import commands

    commands.add(reach, name, mechanisms or MECHANISMS, iterations, data_dir, config_file)


@user.command("list", epilog=LIST_EPILOG, short_help="List users.")
@client_options
@json_option
def list_(reach: Reach, as_json: bool) -> None:
    """List the users, and the mechanisms for which they have a password."""
    from kwire.cli.user import commands

    commands.list_(reach, as_json=as_json)


@user.command(epilog=DELETE_EPILOG, short_help="Delete a user.")
@click.argument("name", metavar="USER")
@client_options
@_mechanisms
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(reach: Reach, name: str, mechanisms: tuple[str, ...], yes: bool) -> None:
    """Delete a user, who then cannot log in any more. Connections that are open stay open, and so do ACLs."""
    from kwire.cli.user import commands

    commands.delete(reach, name, mechanisms, confirm=not yes)
