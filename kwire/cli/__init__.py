"""The `kwire` command. Each subcommand is in its own module, and imports what it needs when it runs."""

from __future__ import annotations

import click

import kwire
from kwire.cli.acl import acl
from kwire.cli.cert import cert
from kwire.cli.cluster import cluster
from kwire.cli.dlq import dlq
from kwire.cli.group import group
from kwire.cli.log import log
from kwire.cli.pipeline import pipeline
from kwire.cli.query import query
from kwire.cli.quota import quota
from kwire.cli.serve import serve
from kwire.cli.txn import txn
from kwire.cli.user import user


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(kwire.__version__, prog_name="kwire", message="%(prog)s %(version)s")
def main() -> None:
    """kwire: a Kafka broker without a JVM.

    It speaks Kafka's protocol and stores Kafka's on-disk format, so Kafka clients work with it unchanged.
    """


main.add_command(acl)
main.add_command(cert)
main.add_command(cluster)
main.add_command(dlq)
main.add_command(group)
main.add_command(log)
main.add_command(pipeline)
main.add_command(query)
main.add_command(quota)
main.add_command(serve)
main.add_command(txn)
main.add_command(user)
