"""`kwire txn`: shows and aborts transactions of any Kafka cluster. `kwire.admin` does the work, `commands.py` prints.

The commands import their modules when they run, so that they do not slow down the start of a broker.
"""

from __future__ import annotations

import click

from kwire.cli.reaching import ClusterCommands, Reach, client_options, json_option

LIST_EPILOG = """\b
Examples:
  kwire txn list                                    every transactional id, with its state
  kwire txn list --state Ongoing --state PrepareCommit
  kwire txn list --hanging                          what blocks read_committed readers forever
  kwire txn list --hanging --topic orders --max-transaction-timeout 60 --json

\b
Exit code with --hanging: 0 nothing hangs, 1 something hangs or could not be checked.
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


@click.group(cls=ClusterCommands)
def txn() -> None:
    """Show a cluster's transactions, and abort those that hang.

    Works with kwire and with any Kafka cluster from version 3.0 on.
    """


@txn.command("list", epilog=LIST_EPILOG, short_help="List transactional ids, or hanging transactions.")
@client_options
@json_option
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only ids in this state. Repeatable.")
@click.option("--hanging", is_flag=True, help="List transactions that are open in a partition and will never end.")
@click.option("--topic", help="With --hanging: check only this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="With --topic: check only this partition.")
@click.option(
    "--max-transaction-timeout",
    "max_timeout_minutes",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    metavar="MINUTES",
    help="With --hanging: the brokers' transaction.max.timeout.ms. Transactions with a later write are not suspected.",
)
def list_(
    reach: Reach,
    as_json: bool,
    states: tuple[str, ...],
    hanging: bool,
    topic: str | None,
    partition: int | None,
    max_timeout_minutes: float,
) -> None:
    """List every transactional id that a coordinator has, or with --hanging the hanging transactions.

    A hanging transaction has been open in a partition for longer than any transaction may be, and no coordinator is
    going to end it there. Until it is aborted, read_committed consumers cannot read past its start.
    """
    from kwire.cli.txn import commands

    if hanging:
        if states:
            raise click.UsageError("--state is for transactional ids: leave it or --hanging out")
        if partition is not None and topic is None:
            raise click.UsageError("--partition is one of a topic's: name it with --topic")
        max_timeout_ms = round(max_timeout_minutes * 60_000)
        commands.list_hanging(reach, max_timeout_ms, topic, partition, as_json=as_json)
    else:
        if topic is not None or partition is not None:
            raise click.UsageError("--topic and --partition are for --hanging: transactional ids have none")
        commands.list_ids(reach, states, as_json=as_json)


@txn.command(epilog=DESCRIBE_EPILOG, short_help="Describe one transactional id.")
@click.argument("transactional_id", metavar="ID")
@client_options
@json_option
def describe(transactional_id: str, reach: Reach, as_json: bool) -> None:
    """Show the coordinator's state of transactional id ID: producer, state, partitions, start time."""
    from kwire.cli.txn import commands

    commands.describe(reach, transactional_id, as_json=as_json)


@txn.command(epilog=ABORT_EPILOG, short_help="Abort a hanging transaction in a partition.")
@client_options
@click.option("--topic", required=True, help="Topic in which the transaction is open.")
@click.option("--partition", required=True, type=click.IntRange(min=0), help="Partition in which it is open.")
@click.option("--start-offset", type=click.IntRange(min=0), help="Offset at which it began; this or --producer-id.")
@click.option("--producer-id", type=click.IntRange(min=0), help="Id of its producer; this or --start-offset.")
@click.option("--force", is_flag=True, help="Abort it even if its coordinator still has it, and may commit it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def abort(
    reach: Reach,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    force: bool,
    yes: bool,
) -> None:
    """Abort a hanging transaction in one partition. The partition's leader writes the missing abort marker.

    Abort the transactions that `kwire txn list --hanging` shows, one partition at a time. Leave other transactions to
    their coordinator: it may commit them in other partitions, and then only part of the transaction would be visible.
    """
    from kwire.cli.txn import commands

    if (start_offset is None) == (producer_id is None):
        raise click.UsageError("name the transaction by --start-offset or by --producer-id")
    which = commands.Which(topic, partition, start_offset, producer_id)
    commands.abort(reach, which, force=force, confirm=not yes)
