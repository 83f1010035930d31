"""`kwire txn`: what becomes of transactions, in any Kafka cluster. `kwire.admin` asks, `commands.py` shows it.

The commands import what they need when they run: the start of a broker pays for none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from kwire.cli.reaching import ClusterCommands

LIST_EPILOG = """\b
Examples:
  kwire txn list                                    every transactional id, with its state
  kwire txn list --state Ongoing --state PrepareCommit
  kwire txn list --hanging                          what holds up read_committed for ever
  kwire txn list --hanging --topic orders --max-transaction-timeout 60 --json

\b
Exit code with --hanging: 0 nothing hangs, 1 something does, or could not be looked at.
"""

DESCRIBE_EPILOG = """\b
Examples:
  kwire txn describe payments-0
  kwire txn describe payments-0 --json | jq .partitions
"""

ABORT_EPILOG = """\b
Examples:
  kwire txn list --hanging
  kwire txn abort --topic orders --partition 0 --start-offset 4711
  kwire txn abort --topic orders --partition 0 --producer-id 2004 --yes
"""


def _client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command needs to reach a cluster; none of them can do more than plain text."""
    for option in (
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0, min_open=True, max=3600),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for a broker.",
        ),
        click.option(
            "--bootstrap-server",
            "bootstrap",
            default="127.0.0.1:9092",
            show_default=True,
            metavar="HOST:PORT",
            help="A broker of the cluster, in plain text; several with commas: the first that answers is asked.",
        ),
    ):
        command = option(command)
    return command


_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line, under names that stay.")


@click.group(cls=ClusterCommands)
def txn() -> None:
    """Look at the transactions of a cluster, and end those that hang.

    Any Kafka cluster from version 3.0 on is asked over its admin protocol, kwire or not.
    """


@txn.command("list", epilog=LIST_EPILOG, short_help="List transactional ids, or what hangs.")
@_client_options
@_JSON
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only ids in this state. May be repeated.")
@click.option("--hanging", is_flag=True, help="Transactions that are open in a partition and never will be ended.")
@click.option("--topic", help="With --hanging: look at this topic only.")
@click.option("--partition", type=click.IntRange(min=0), help="With --topic: look at this partition only.")
@click.option(
    "--max-transaction-timeout",
    "max_timeout_minutes",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    metavar="MINUTES",
    help="With --hanging: the brokers' transaction.max.timeout.ms; what wrote later than that is not suspected.",
)
def list_(
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
    states: tuple[str, ...],
    hanging: bool,
    topic: str | None,
    partition: int | None,
    max_timeout_minutes: float,
) -> None:
    """List every transactional id that a coordinator knows, or with --hanging what hangs.

    A transaction hangs that is open in a partition for longer than any may be, and of which no coordinator knows that
    it will have to end it there. Until somebody aborts it, readers of committed data stop in front of it.
    """
    from kwire.cli.txn import commands

    if hanging:
        if states:
            raise click.UsageError("--state is for transactional ids: leave it or --hanging out")
        if partition is not None and topic is None:
            raise click.UsageError("--partition is one of a topic's: name it with --topic")
        max_timeout_ms = round(max_timeout_minutes * 60_000)
        commands.list_hanging(bootstrap, timeout_s, max_timeout_ms, topic, partition, as_json=as_json)
    else:
        if topic is not None or partition is not None:
            raise click.UsageError("--topic and --partition are for --hanging: transactional ids have none")
        commands.list_ids(bootstrap, timeout_s, states, as_json=as_json)


@txn.command(epilog=DESCRIBE_EPILOG, short_help="Describe one transactional id.")
@click.argument("transactional_id", metavar="ID")
@_client_options
@_JSON
def describe(transactional_id: str, bootstrap: str, timeout_s: float, as_json: bool) -> None:
    """Tell what the coordinator of transactional id ID knows of it: producer, state, partitions, since when."""
    from kwire.cli.txn import commands

    commands.describe(bootstrap, timeout_s, transactional_id, as_json=as_json)


@txn.command(epilog=ABORT_EPILOG, short_help="Abort a hanging transaction in a partition.")
@_client_options
@click.option("--topic", required=True, help="The topic in which it is open.")
@click.option("--partition", required=True, type=click.IntRange(min=0), help="The partition in which it is open.")
@click.option("--start-offset", type=click.IntRange(min=0), help="The transaction that began at this offset, or")
@click.option("--producer-id", type=click.IntRange(min=0), help="the one of this producer.")
@click.option("--force", is_flag=True, help="Also one that its coordinator still knows, which may want to commit it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def abort(
    bootstrap: str,
    timeout_s: float,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    force: bool,
    yes: bool,
) -> None:
    """Abort a transaction in one partition: its leader writes the marker that the coordinator never will.

    What `kwire txn list --hanging` has found is aborted partition by partition. Other transactions are left to their
    coordinator: to commit in one partition what is aborted in another is what transactions are there to prevent.
    """
    from kwire.cli.txn import commands

    if (start_offset is None) == (producer_id is None):
        raise click.UsageError("name the transaction by --start-offset or by --producer-id")
    which = commands.Which(topic, partition, start_offset, producer_id)
    commands.abort(bootstrap, timeout_s, which, force=force, ask=not yes)
