"""`kwire cluster`: shows any Kafka cluster, and changes the replicas and the leaders of its partitions.

`kwire.admin` sends the requests; `showing.py`, `moves.py`, `elections.py` and `forgetting.py` print; `watching.py`
shows progress. The commands import their modules when they run, so that they do not slow down the start of a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kwire.cli.reaching import ClusterCommands, Reach, client_options, json_option

if TYPE_CHECKING:
    from kwire.client.cluster import TopicPartition

STATUS_EPILOG = """\b
Examples:
  kwire cluster status
  kwire cluster status --all                        names every partition that needs attention
  kwire cluster status --json | jq 'select(.type == "partition")'
  until kwire cluster status --json > health; do sleep 1; done

\b
Exit code: 0 if all is well, 1 if a partition is offline, under-replicated or below
min.insync.replicas, or if the cluster cannot be reached.
"""

REASSIGNMENTS_EPILOG = """\b
Examples:
  kwire cluster reassignments
  kwire cluster reassignments --watch               until the last one has ended
  kwire cluster reassignments --json | jq .percent

\b
Exit code with --watch: 0 if all were completed, 1 if one was cancelled or its topic was deleted.
"""

MOVE_EPILOG = """\b
Examples:
  kwire cluster move orders-0 --to 2,3,1            broker 2 is to lead
  kwire cluster move orders-0 --to 2,3,1 --yes --watch
  kwire cluster move orders-0 --to 2,3,1 --watch --throttle 10000000
  kwire cluster move orders-0 --cancel
"""

ELECT_EPILOG = """\b
Examples:
  kwire cluster elect                               after a broker came back: give its partitions back to it
  kwire cluster elect --topic orders --json
  kwire cluster elect --topic orders --unclean      give up records that are only on lost brokers

\b
Exit code: 0 if every election succeeded, or none was needed, 1 otherwise.
"""

FORGET_EPILOG = """\b
Examples:
  kwire cluster status                              shows brokers that are not in service
  kwire cluster forget 3
  kwire cluster forget 3 --yes --force              although records are on no other broker
"""

_YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def _partition(_context: click.Context, _parameter: click.Parameter, value: str) -> TopicPartition:
    from kwire.client.cluster import TopicPartition

    topic, _, index = value.rpartition("-")
    if not topic or not (index.isascii() and index.isdecimal()) or len(index) > 9:
        raise click.BadParameter(f"{value!r} is not TOPIC-PARTITION, such as orders-0")
    return TopicPartition(topic, int(index))


def _replicas(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    ids = [it.strip() for it in value.split(",")]
    if not all(it.isascii() and it.isdecimal() and len(it) <= 9 for it in ids):
        raise click.BadParameter(f"{value!r} is not a list of node ids, such as 2,3,1")
    found = tuple(map(int, ids))
    if len(set(found)) < len(found):
        raise click.BadParameter(f"{value!r} names a broker twice")
    return found


@click.group(cls=ClusterCommands)
def cluster() -> None:
    """Show a cluster's brokers and partitions, move partitions, and elect leaders.

    Works with kwire and with any Kafka cluster from version 2.4 on. What older brokers do not return is left out, and a
    sentence on standard error says so.
    """


@cluster.command(epilog=STATUS_EPILOG, short_help="Show brokers, and partitions that need attention.")
@client_options
@json_option
@click.option("--all", "all_names", is_flag=True, help="Name all partitions, not only the first ten of each kind.")
def status(reach: Reach, as_json: bool, all_names: bool) -> None:
    """Show the brokers, the controller, and the partitions that need attention.

    \b
    offline                    it has no leader: nobody can read or write it
    under-replicated           some of its replicas are not in sync
    below min.insync.replicas  so few are in sync that a Produce with acks=all fails

    --json prints an object of type "cluster" with counts, then those of type "node", "partition" (all that need
    attention), and "reassignment".
    """
    from kwire.cli.cluster import showing

    showing.show_status(reach, as_json=as_json, all_names=all_names)


@cluster.command(epilog=REASSIGNMENTS_EPILOG, short_help="Show the reassignments in progress.")
@client_options
@json_option
@click.option("--watch", is_flag=True, help="Show progress until the last reassignment has ended.")
def reassignments(reach: Reach, as_json: bool, watch: bool) -> None:
    """Show the reassignments in progress, and how much of them is copied.

    Progress is the size of the new replicas compared with the leader's. --watch shows a bar for each on a terminal, and
    elsewhere prints a line for each change. Interrupting it does not stop a reassignment.
    """
    from kwire.cli.cluster import moves

    if watch and as_json:
        raise click.UsageError("--json prints the reassignments once: leave it or --watch out")
    if watch:
        moves.watch_reassignments(reach)
    else:
        moves.show_reassignments(reach, as_json=as_json)


@cluster.command(epilog=MOVE_EPILOG, short_help="Move a partition to other brokers, or cancel that.")
@click.argument("partition", metavar="TOPIC-PARTITION", callback=_partition)
@client_options
@click.option(
    "--to",
    "replicas",
    metavar="IDS",
    callback=_replicas,
    help="Brokers that are to have it, the preferred leader first.",
)
@click.option("--cancel", is_flag=True, help="Cancel its reassignment: the new replicas are dropped.")
@click.option("--watch", is_flag=True, help="Show progress until the reassignment has ended.")
@click.option(
    "--throttle",
    "bytes_per_second",
    metavar="BYTES",
    type=click.IntRange(1, 2**63 - 1),
    help="With --watch: copy at most so many bytes per second. The limit is removed when the reassignment has ended.",
)
@_YES
def move(
    partition: TopicPartition,
    reach: Reach,
    replicas: tuple[int, ...] | None,
    cancel: bool,
    watch: bool,
    bytes_per_second: int | None,
    yes: bool,
) -> None:
    """Move a partition to the brokers of --to, while it is read and written.

    The new replicas are copied from the leader. When all are in sync, the others are dropped. More or fewer brokers
    than before change the partition's replication factor.

    --throttle limits the brokers that send and those that copy, as kafka-reassign-partitions does
    (leader.replication.throttled.rate, ...). Replicas in sync are not limited. If the command is interrupted, the
    limit stays until the same command is repeated, or the reassignment is cancelled.

    With --watch the exit code is 1 if the reassignment was cancelled.
    """
    from kwire.cli.cluster import moves

    if (replicas is not None) == cancel:
        raise click.UsageError("say where it is to go by --to, or --cancel its reassignment")
    if cancel and watch:
        raise click.UsageError("a cancelled reassignment ends at once: leave --watch out")
    if bytes_per_second is not None and not watch:
        raise click.UsageError("--throttle needs --watch: the limit is removed when the reassignment has ended")
    if replicas is None:
        moves.cancel(reach, partition, confirm=not yes)
    else:
        moves.move(
            reach,
            partition,
            replicas,
            confirm=not yes,
            watch=watch,
            bytes_per_second=bytes_per_second,
        )


@cluster.command(epilog=ELECT_EPILOG, short_help="Elect preferred leaders, or leaders out of sync.")
@client_options
@json_option
@click.option("--topic", help="Only the partitions of this topic.")
@click.option("--unclean", is_flag=True, help="Give partitions without a leader one that may lack records.")
@click.option("--yes", is_flag=True, help="With --unclean: do not ask for confirmation.")
def elect(reach: Reach, as_json: bool, topic: str | None, unclean: bool, yes: bool) -> None:
    """Give partitions back to their preferred leaders: the first broker of their replicas, if it is in sync.

    With --unclean, partitions without a leader get any replica that is in service. Records that it does not have are
    lost, even if they were acknowledged.
    """
    from kwire.cli.cluster import elections

    if yes and not unclean:
        raise click.UsageError("--yes is for --unclean: preferred leaders lose nothing, so there is no question")
    elections.elect_leaders(reach, topic, unclean=unclean, confirm=not yes, as_json=as_json)


@cluster.command(epilog=FORGET_EPILOG, short_help="Forget a broker that does not come back.")
@click.argument("node_id", metavar="NODE_ID", type=click.IntRange(min=0))
@client_options
@click.option("--force", is_flag=True, help="Forget it even if records are on no other broker.")
@_YES
def forget(node_id: int, reach: Reach, force: bool, yes: bool) -> None:
    """Forget broker NODE_ID, which was stopped and does not come back.

    The cluster no longer lists it. Its replicas stay assigned to it, so its partitions are under-replicated until they
    are moved. If the broker is started again, it registers again.
    """
    from kwire.cli.cluster import forgetting

    forgetting.forget(reach, node_id, force=force, confirm=not yes)
