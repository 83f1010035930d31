"""`kwire group list`, `describe` and `members`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import attrs
import click

from kwire.admin.groups import GroupAdmin, GroupDescription, GroupMember, ListedGroup, MemberTasks
from kwire.admin.groups_offsets import PartitionProgress, progress
from kwire.admin.groups_topology import SINK, SOURCE, SubtopologyNodes, TopologyNode, topology
from kwire.admin.partitions import by_topic
from kwire.cli.columns import Row, cell, printable, show
from kwire.cli.reaching import Reach
from kwire.client.cluster import TopicPartition

_GROUP_COLUMNS = {
    "group_id": "GROUP",
    "kind": "TYPE",
    "state": "STATE",
    "protocol_type": "PROTOCOL",
    "coordinator_id": "COORDINATOR",
}
_PARTITION_COLUMNS = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "offset": "OFFSET",
    "log_end": "LOG END",
    "lag": "LAG",
    "member_id": "MEMBER",
    "client_id": "CLIENT",
    "host": "HOST",
}
_MEMBER_COLUMNS = {
    "member_id": "MEMBER",
    "instance_id": "INSTANCE",
    "client_id": "CLIENT",
    "host": "HOST",
    "epoch": "EPOCH",
    "protocol": "PROTOCOL",
    "subscription": "SUBSCRIPTION",
    "tasks": "TASKS",
    "partitions": "PARTITIONS",
    "target": "TARGET",
}


def list_groups(reach: Reach, kinds: Collection[str], states: Collection[str], *, as_json: bool) -> None:
    with reach.cluster() as cluster:
        found = GroupAdmin(cluster).list_groups(kinds=kinds, states=states)
    if not found and not as_json:
        click.echo("there is no such group" if kinds or states else "there are no groups")
        return
    show([_listed_row(it, as_json=as_json) for it in found], _GROUP_COLUMNS, as_json=as_json)


def describe(reach: Reach, group_id: str, *, as_json: bool) -> None:
    with reach.cluster() as cluster:
        group = GroupAdmin(cluster).describe(group_id)
        found = progress(cluster, group)
    for note in found.notes:
        click.echo(f"note: {printable(note)}", err=True)
    if as_json:
        rows = [_group_row(group), *(_partition_json(it) for it in found.partitions)]
        show(rows + [_member_json(it) for it in group.members], {}, as_json=True)
        return
    for name, value in _group_row(group).items():
        if name != "type" and value is not None:
            click.echo(f"{_heading(name):17} {cell(name, value) or '-'}")
    rows = [*_partition_rows(group, found.partitions)]
    click.echo()
    if rows:
        show(rows, _PARTITION_COLUMNS, as_json=False)
    else:
        click.echo("it has no offsets and no members")


def show_topology(reach: Reach, group_id: str, *, as_json: bool) -> None:
    with reach.cluster() as cluster:
        found = topology(cluster, group_id)
    if as_json:
        show([_node_json(part, it) for part in found for it in part.nodes], {}, as_json=True)
        return
    click.echo("Topologies:")
    for part in found:
        what = " for global store (will not generate tasks)" if part.is_global else ""
        click.echo(f"   Sub-topology: {printable(part.subtopology_id)}{what}")
        for it in part.nodes:
            click.echo(f"    {_node_text(it)}")
            if it.kind != SINK:
                click.echo(f"      --> {_names(it.successors) or 'none'}")
            if it.kind != SOURCE:
                click.echo(f"      <-- {_names(it.predecessors) or 'none'}")
        click.echo()


def _node_text(it: TopologyNode) -> str:
    match it.kind:
        case "source":
            about = f"topics: [{_names(it.topics)}]"
        case "sink":
            about = f"topic: {_names(it.topics) or 'chosen for each record'}"
        case _:
            about = f"stores: [{_names(it.stores)}]"
    return f"{it.kind.capitalize()}: {printable(it.name)} ({about})"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(printable, names))


def _node_json(part: SubtopologyNodes, it: TopologyNode) -> Row:
    where = {"subtopology_id": part.subtopology_id, "is_global": part.is_global}
    return {"type": "node", **where, **attrs.asdict(it)}


def show_members(reach: Reach, group_id: str, *, as_json: bool) -> None:
    with reach.cluster() as cluster:
        group = GroupAdmin(cluster).describe(group_id)
    if as_json:
        show([_member_json(it) for it in group.members], {}, as_json=True)
    elif group.members:
        shown = dict(_MEMBER_COLUMNS)
        for name in ("instance_id", "epoch", "tasks", "target"):  # fields that most groups do not have
            if all(_member_row(it)[name] is None for it in group.members):
                del shown[name]
        show([_member_row(it) for it in group.members], shown, as_json=False)
    else:
        click.echo(printable(f"group {group.group_id} has no members: it is {group.state}"))


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Returns partitions in the format of --topic, such as orders:0,2 payments:1."""
    return " ".join(f"{topic}:{','.join(map(str, found))}" for topic, found in by_topic(partitions).items())


def _heading(name: str) -> str:
    return {"kind": "type", "group_id": "group", "coordinator_id": "coordinator"}.get(name, name.replace("_", " "))


def _listed_row(it: ListedGroup, *, as_json: bool) -> Row:
    row = {"type": "group", **attrs.asdict(it)}
    return row if as_json else {**row, "protocol_type": it.protocol_type or None}


def _group_row(it: GroupDescription) -> dict[str, object]:
    return {
        "type": "group",
        "group_id": it.group_id,
        "kind": it.kind,
        "state": it.state,
        "protocol_type": it.protocol_type,
        "assignor": it.assignor,
        "epoch": it.epoch,
        "assignment_epoch": it.assignment_epoch,
        "coordinator_id": it.coordinator_id,
        "members": len(it.members),
    }


def _partition_json(it: PartitionProgress) -> Row:
    return {
        "type": "partition",
        "topic": it.at.topic,
        "partition": it.at.partition,
        "offset": it.offset,
        "log_end": it.log_end,
        "lag": it.lag,
        "member_ids": list(it.member_ids),
    }


def _partition_rows(group: GroupDescription, partitions: Sequence[PartitionProgress]) -> Iterable[Row]:
    """A row for each owner of a partition, for each partition without, and for each member without partitions."""
    members = {it.member_id: it for it in group.members}
    for it in partitions:
        row = {**_partition_json(it), "member_id": None, "client_id": None, "host": None}
        for member_id in it.member_ids or (None,):
            owner = {} if member_id is None else _who(members[member_id])
            yield row | owner
    nothing = dict.fromkeys(("topic", "partition", "offset", "log_end", "lag"))
    for member in group.members:
        if not member.partitions:
            yield {**nothing, **_who(member)}


def _who(it: GroupMember) -> dict[str, object]:
    return {"member_id": it.member_id, "client_id": it.client_id, "host": it.host}


def _member_row(it: GroupMember) -> Row:
    target = None if it.target is None or it.target == it.partitions else partitions_text(it.target) or "none"
    if it.target_tasks != it.tasks and it.target_tasks is not None:
        target = _tasks_text(it.target_tasks) or "none"
    subscribed = [*(it.topics or ()), *(() if it.regex is None else (f"/{it.regex}/",))]
    return {
        **_who(it),
        "instance_id": it.instance_id,
        "epoch": it.epoch,
        "protocol": it.protocol,
        "subscription": ",".join(subscribed) or None,
        "tasks": None if it.tasks is None else _tasks_text(it.tasks) or "none",
        "partitions": partitions_text(it.partitions) or None,
        "target": target,
    }


def _member_json(it: GroupMember) -> Row:
    return {
        "type": "member",
        "member_id": it.member_id,
        "instance_id": it.instance_id,
        "client_id": it.client_id,
        "host": it.host,
        "rack_id": it.rack_id,
        "epoch": it.epoch,
        "protocol": it.protocol,
        "topics": None if it.topics is None else list(it.topics),
        "regex": it.regex,
        "partitions": _partitions_json(it.partitions),
        "target": None if it.target is None else _partitions_json(it.target),
        **({} if it.tasks is None else _tasks_json(it)),
    }


def _tasks_text(tasks: MemberTasks) -> str:
    """Returns the tasks by role and subtopology, such as active 0:1,2 1:0 standby 1:3."""
    roles = [
        " ".join([role, *(f"{name}:{','.join(map(str, partitions))}" for name, partitions in of_role)])
        for role, of_role in attrs.asdict(tasks, recurse=False).items()
        if of_role
    ]
    return " ".join(roles)


def _tasks_json(it: GroupMember) -> Row:
    return {
        "process_id": it.process_id,
        "tasks": None if it.tasks is None else _roles(it.tasks),
        "target_tasks": None if it.target_tasks is None else _roles(it.target_tasks),
    }


def _roles(tasks: MemberTasks) -> dict[str, dict[str, list[int]]]:
    return {
        role: {name: list(partitions) for name, partitions in of_role}
        for role, of_role in attrs.asdict(tasks, recurse=False).items()
    }


def _partitions_json(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": it.topic, "partition": it.partition} for it in partitions]
