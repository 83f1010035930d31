"""`kwire group`: groups of all kinds, in any Kafka cluster. `kwire.admin` sends the requests; the other modules print.

The commands import their modules when they run, so that they do not slow down the start of a broker.
"""

from __future__ import annotations

import click

from kwire.cli.reaching import ClusterCommands, Reach, client_options, json_option

LIST_EPILOG = """\b
Examples:
  kwire group list                                  every group, with its kind and state
  kwire group list --type consumer --state Stable
  kwire group list --json | jq -r .group_id
"""

DESCRIBE_EPILOG = """\b
Examples:
  kwire group describe kitchen
  kwire group describe kitchen --json | jq 'select(.type == "partition") | .lag'
  kwire group describe words --topology
"""

MEMBERS_EPILOG = """\b
Examples:
  kwire group members kitchen
  kwire group members kitchen --json | jq .partitions
"""

RESET_EPILOG = """\b
Examples:
  kwire group reset kitchen --topic orders --to-earliest              shows what would change
  kwire group reset kitchen --topic orders --to-earliest --execute
  kwire group reset kitchen --topic orders:0,2 --shift-by -100 --execute
  kwire group reset kitchen --all-topics --by-duration PT2H --execute
  kwire group reset kitchen --all-topics --to-datetime 2026-01-31T12:00:00Z --execute
"""

DELETE_EPILOG = """\b
Examples:
  kwire group delete kitchen
  kwire group delete kitchen bar --yes

\b
Exit code: 0 if every group was deleted, 1 otherwise.
"""

DELETE_OFFSETS_EPILOG = """\b
Examples:
  kwire group delete-offsets kitchen --topic orders
  kwire group delete-offsets kitchen --topic orders:0,2 --topic payments --yes

\b
Exit code: 0 if all of them were deleted, 1 otherwise.
"""

_KINDS = ("classic", "consumer", "share", "streams")
_STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Stable",
    "Dead",
)
_LARGEST = 2**63 - 1

_YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_TOPICS = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="This topic, or these partitions of it. Repeatable.",
)


@click.group(cls=ClusterCommands)
def group() -> None:
    """Show groups of all kinds, reset their offsets, and delete them.

    Works with kwire and with any Kafka cluster from version 3.0 on.
    """


@group.command("list", epilog=LIST_EPILOG, short_help="List the groups of all brokers.")
@client_options
@json_option
@click.option(
    "--type",
    "kinds",
    multiple=True,
    type=click.Choice(_KINDS, case_sensitive=False),
    help="Only groups of this kind (from Kafka 3.8 on). Repeatable.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only groups in this state, such as Stable or Empty. Repeatable.",
)
def list_(reach: Reach, as_json: bool, kinds: tuple[str, ...], states: tuple[str, ...]) -> None:
    """List the groups of all brokers: classic, consumer (KIP-848), share and streams groups.

    A group that only keeps offsets, such as one of Spark's or of a mirror, is a classic one without a protocol.
    """
    from kwire.cli.group import showing

    showing.list_groups(reach, kinds, states, as_json=as_json)


@group.command(epilog=DESCRIBE_EPILOG, short_help="Show a group's state, and its lag by partition.")
@click.argument("group_id", metavar="GROUP")
@client_options
@json_option
@click.option("--topology", is_flag=True, help="Show how the application of a streams group is built instead.")
def describe(group_id: str, reach: Reach, as_json: bool, topology: bool) -> None:
    """Show the state of GROUP, and for each partition the offset, the end of the log, the lag and the owner.

    The offset is what is committed, or in a share group the start offset. A member that owns no partition has a row,
    too. Classic groups have no epochs, and brokers do not return their generation. Members of streams groups own the
    partitions that their active tasks read.

    --topology needs Kafka 4.4 or kwire, with group.streams.topology.description.plugin.class. It has the form of Kafka
    Streams.

    --json prints an object of type "group", then those of type "partition" and "member". With --topology, it prints
    objects of type "node".
    """
    from kwire.cli.group import showing

    if topology:
        showing.show_topology(reach, group_id, as_json=as_json)
        return
    showing.describe(reach, group_id, as_json=as_json)


@group.command(epilog=MEMBERS_EPILOG, short_help="Show a group's members, and what they own.")
@click.argument("group_id", metavar="GROUP")
@client_options
@json_option
def members(group_id: str, reach: Reach, as_json: bool) -> None:
    """Show the members of GROUP: client, host, epoch, protocol, subscription, and the partitions that they own.

    A target is shown while it differs from what a member owns: partitions that it is to give up, or to get.
    """
    from kwire.cli.group import showing

    showing.show_members(reach, group_id, as_json=as_json)


@group.command(epilog=RESET_EPILOG, short_help="Set the offsets of a group without members.")
@click.argument("group_id", metavar="GROUP")
@client_options
@json_option
@_TOPICS
@click.option("--all-topics", is_flag=True, help="All partitions in which the group has an offset.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end: only what is written from now on.")
@click.option("--to-offset", type=click.IntRange(0, _LARGEST), metavar="OFFSET", help="To this offset.")
@click.option(
    "--shift-by",
    type=click.IntRange(-_LARGEST, _LARGEST),
    metavar="RECORDS",
    help="From where it is; backwards if negative.",
)
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="To the first record since: 2026-01-31T12:00:00Z, 2026-01-31, or ms since 1970.",
)
@click.option(
    "--by-duration", metavar="DURATION", help="To the first record of so long ago: PT2H, P1DT12H, or 90m, 2h, 7d."
)
@click.option("--execute", is_flag=True, help="Set the offsets. Without it nothing is changed.")
def reset(
    group_id: str,
    reach: Reach,
    as_json: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    execute: bool,
) -> None:
    """Show what a reset of GROUP would change, and with --execute set the offsets.

    Refuses while the group has members. An offset that is not in the log becomes the nearest one that is. A time
    without a later record means the end. With --topic, a group that does not exist is created.

    In a share group the start offset is set, and what was delivered after it is forgotten.
    """
    from kwire.cli.group import resetting
    from kwire.cli.group.arguments import parse_scope

    if bool(topics) == all_topics:
        raise click.UsageError("say which partitions: by --topic, or by --all-topics")
    target = resetting.choose_target(to_earliest, to_latest, to_offset, shift_by, to_datetime, by_duration)
    scope = parse_scope(topics) if topics else None
    resetting.reset(reach, group_id, scope, target, execute=execute, as_json=as_json)


@group.command(epilog=DELETE_EPILOG, short_help="Delete groups and their offsets.")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True)
@client_options
@json_option
@_YES
def delete(group_ids: tuple[str, ...], reach: Reach, as_json: bool, yes: bool) -> None:
    """Delete groups, and with them their offsets. A group with members is not deleted."""
    from kwire.cli.group import deleting

    deleting.delete(reach, group_ids, confirm=not yes, as_json=as_json)


@group.command("delete-offsets", epilog=DELETE_OFFSETS_EPILOG, short_help="Delete a group's offsets in some topics.")
@click.argument("group_id", metavar="GROUP")
@client_options
@json_option
@_TOPICS
@_YES
def delete_offsets(group_id: str, reach: Reach, as_json: bool, topics: tuple[str, ...], yes: bool) -> None:
    """Delete the offsets of GROUP in some topics, or in some of their partitions.

    Offsets of a topic that a member subscribes to are not deleted. A share group must have no members, and its offsets
    are deleted by whole topics.
    """
    from kwire.cli.group import deleting
    from kwire.cli.group.arguments import parse_scope

    if not topics:
        raise click.UsageError("say which offsets by --topic")
    deleting.delete_offsets(reach, group_id, parse_scope(topics), confirm=not yes, as_json=as_json)
