"""`kwire cert`: certificates for TLS on a laptop, and settings that use them. `making.py` writes them."""

from __future__ import annotations

from pathlib import Path

import click

DEV_EPILOG = """\b
Examples:
  kwire cert dev                                    ./certs, for localhost
  kwire cert dev --host broker-1 --host 10.0.0.7    for other names and addresses, too
  kwire cert dev --client alice --client bob        a certificate for each of these clients
  kwire cert dev --admin admin                      clients log in with passwords, and need ACLs
  kwire serve --config certs/server.properties

\b
A second run with the same folder keeps the authority, and issues what is missing. Brokers and
clients that trust ca.pem trust that, too.
"""


@click.group()
def cert() -> None:
    """Make certificates for TLS."""


@cert.command(epilog=DEV_EPILOG, short_help="Make an authority, and certificates for a broker and clients.")
@click.option(
    "--out",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("certs"),
    show_default=True,
    metavar="DIRECTORY",
    help="Where to write the files.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="Name or address at which clients reach the broker, besides localhost. Repeatable.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="Name in a client's certificate. Repeatable. [default: client]",
)
@click.option(
    "--admin",
    metavar="NAME",
    help="Clients log in with a password (SCRAM) instead of a certificate; NAME may do everything, all others need "
    "ACLs.",
)
def dev(folder: Path, hosts: tuple[str, ...], clients: tuple[str, ...], admin: str | None) -> None:
    """Make a certificate authority, and certificates for a broker and its clients, for development.

    The files are PEM, as Kafka's brokers and clients read them. server.properties and client.properties have the
    settings that use them. With --admin there are no certificates of clients: NAME.properties has the settings of the
    user NAME, whose new password is also in NAME.password. Add that user before the broker starts:

    \b
      kwire cert dev --admin admin
      kwire user add admin --data-dir data < certs/admin.password
      kwire serve --config certs/server.properties
    """
    from kwire.cli.cert import making

    if admin is not None and clients:
        raise click.UsageError("with --admin clients have no certificates: leave --client away")
    making.make(folder, hosts, clients or ("client",), admin)
