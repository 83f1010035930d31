"""`kwire cluster reassignments` and `kwire cluster move`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from kwire.admin.partitions import PartitionState, look_up_partition, replica_sizes
from kwire.admin.reassignments import (
    Outcome,
    Progress,
    Reassignment,
    cancel_reassignment,
    list_reassignments,
    measure,
    reassign,
)
from kwire.admin.throttles import end_limit, limit_copying
from kwire.cli.cluster.showing import nodes_text, reassignment_row
from kwire.cli.cluster.watching import watch_until_ended
from kwire.cli.columns import Row, printable, show, size_text
from kwire.cli.reaching import Reach
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import Refused

_COLUMNS = {
    "name": "PARTITION",
    "before": "FROM",
    "target": "TO",
    "copied": "COPIED",
    "total": "OF",
    "percent": "%",
}


def show_reassignments(reach: Reach, *, as_json: bool) -> None:
    with reach.cluster() as cluster:
        found = list_reassignments(cluster)
        progress = measure(cluster, found)
    if not found and not as_json:
        click.echo("no reassignment is in progress")
        return
    unknown = Progress(0, None)
    rows = [(it, progress.get(it.at, unknown)) for it in found]
    show([_json_row(*it) if as_json else _text_row(*it) for it in rows], _COLUMNS, as_json=as_json)


def watch_reassignments(reach: Reach) -> None:
    """Exits with 1 if one of them was not completed."""
    with reach.cluster() as cluster:
        outcomes = watch_until_ended(cluster)
    if not outcomes:
        click.echo("no reassignment is in progress")
    _exit_unless_complete(outcomes)


def move(
    reach: Reach,
    at: TopicPartition,
    replicas: Sequence[int],
    *,
    confirm: bool,
    watch: bool,
    bytes_per_second: int | None = None,
) -> None:
    """With `watch`, exits with 1 if the reassignment was not completed. `bytes_per_second` limits it until its end."""
    with reach.cluster() as cluster:
        partition = look_up_partition(cluster, at)
        replaced = next(iter(list_reassignments(cluster, at)), None)
        target = tuple(replicas)
        if replaced is not None and replaced.target == target:
            begun = replaced
            click.echo(printable(f"{at} is being moved to {nodes_text(target)} already"))
        elif replaced is None and partition.replicas == target:
            click.echo(printable(f"{at} is on {nodes_text(target)} already"))
            if bytes_per_second is not None:
                _end_limit(cluster, at)
            return
        else:
            begun = _planned(partition, target)
            if confirm:
                lines = _consequences(cluster, partition, replaced, begun)
                click.confirm("\n".join(map(printable, lines)) + "\nmove it?", abort=True)
        with _limited(cluster, begun, bytes_per_second):
            if begun is not replaced:
                _begin(cluster, at, target, is_limited=bytes_per_second is not None)
                click.echo(printable(f"moving {at} to {nodes_text(target)}"))
            outcomes = watch_until_ended(cluster, begun) if watch else ()
        _exit_unless_complete(outcomes)


@contextmanager
def _limited(cluster: Cluster, begun: Reassignment, bytes_per_second: int | None) -> Iterator[None]:
    """Limits the reassignment. If the command is interrupted, the limit stays, because the copying continues."""
    if bytes_per_second is None:
        yield
        return
    limit_copying(cluster, begun, bytes_per_second)
    click.echo(printable(f"limiting {begun.at} to {size_text(bytes_per_second)} per second"))
    try:
        yield
    except Refused:
        raise
    except BaseException:
        click.echo(printable(f"the limit on {begun.at} stays. To remove it, repeat the command, or --cancel"), err=True)
        raise
    _end_limit(cluster, begun.at)


def _begin(cluster: Cluster, at: TopicPartition, target: Sequence[int], *, is_limited: bool) -> None:
    try:
        reassign(cluster, at, target)
    except Refused:
        if is_limited:
            _end_limit(cluster, at)
        raise


def _end_limit(cluster: Cluster, at: TopicPartition) -> None:
    if end_limit(cluster, at):
        click.echo(printable(f"removed the limit on {at}"))


def cancel(reach: Reach, at: TopicPartition, *, confirm: bool) -> None:
    with reach.cluster() as cluster:
        for it in list_reassignments(cluster, at):
            message = f"{at} stays on {nodes_text(it.before)}"
            if it.adding:
                message += f". What {_brokers(it.adding)} copied so far is deleted"
            if confirm:
                click.confirm(f"{printable(message)}.\ncancel its reassignment?", abort=True)
        cancel_reassignment(cluster, at)
        click.echo(printable(f"cancelled the reassignment of {at}"))
        _end_limit(cluster, at)


def _planned(partition: PartitionState, target: tuple[int, ...]) -> Reassignment:
    """Returns the reassignment as the cluster will list it."""
    removing = tuple(it for it in partition.replicas if it not in target)
    adding = tuple(it for it in target if it not in partition.replicas)
    return Reassignment(partition.at, (*target, *removing), adding, removing)


def _consequences(
    cluster: Cluster, partition: PartitionState, replaced: Reassignment | None, begun: Reassignment
) -> list[str]:
    """Returns the consequences of a move, a sentence each, for the question before it."""
    before = partition.replicas if replaced is None else replaced.before
    lines = [f"{begun.at} is on {nodes_text(before)}, and is to be on {nodes_text(begun.target)}."]
    if replaced is not None:
        lines.append(f"Its reassignment to {nodes_text(replaced.target)} is in progress, and ends.")
    if begun.adding:
        lines.append(_copying(cluster, partition, begun.adding))
    else:
        lines.append("Nothing is copied.")
    if begun.removing:
        lines.append(f"The replicas on {_brokers(begun.removing)} are deleted when all others are in sync.")
    if len(begun.target) != len(before):
        lines.append(f"Its replication factor becomes {len(begun.target)}; it is {len(before)}.")
    if begun.target[0] != before[0]:
        lines.append(f"Its preferred leader becomes broker {begun.target[0]}.")
    absent = [it for it in begun.target if it not in cluster.node_ids()]
    if absent:
        lines.append(f"Not in service: {_brokers(absent)}. The reassignment is not complete before it is.")
    return lines


def _copying(cluster: Cluster, partition: PartitionState, adding: Sequence[int]) -> str:
    leader_id = partition.leader_id
    if leader_id is None:
        return f"It has no leader: {_brokers(adding)} cannot copy it before it has one."
    size = replica_sizes(cluster, [(leader_id, partition.at)]).get((leader_id, partition.at))
    copied = "an unknown number of bytes" if size is None else size_text(size)
    if len(adding) == 1:
        return f"Broker {adding[0]} copies {copied} from broker {leader_id}."
    total = "" if size is None else f", {size_text(size * len(adding))} in total"
    return f"Each of {_brokers(adding)} copies {copied} from broker {leader_id}{total}."


def _brokers(node_ids: Sequence[int]) -> str:
    return f"{'broker' if len(node_ids) == 1 else 'brokers'} {nodes_text(node_ids)}"


def _exit_unless_complete(outcomes: Sequence[Outcome]) -> None:
    if any(it is not Outcome.COMPLETE for it in outcomes):
        raise click.exceptions.Exit(1)


def _json_row(it: Reassignment, progress: Progress) -> Row:
    return {
        **reassignment_row(it),
        "copied_bytes": progress.copied_bytes,
        "total_bytes": progress.total_bytes,
        "percent": progress.percent,
    }


def _text_row(it: Reassignment, progress: Progress) -> Row:
    return {
        "name": str(it.at),
        "before": nodes_text(it.before),
        "target": nodes_text(it.target),
        "copied": size_text(progress.copied_bytes),
        "total": None if progress.total_bytes is None else size_text(progress.total_bytes),
        "percent": progress.percent,
    }
