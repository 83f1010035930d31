"""`kwire group delete` and `kwire group delete-offsets`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click
from kwire_protocol.kafka_error import quoted

from kwire.admin.groups import SHARE, GroupAdmin, GroupDescription
from kwire.admin.groups_offsets import delete_offsets as delete_committed
from kwire.admin.groups_offsets import delete_share_offsets, positions
from kwire.admin.groups_reset import Scope
from kwire.cli.columns import Row, printable, show
from kwire.cli.group.showing import partitions_text
from kwire.cli.reaching import Reach
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError

_GROUP_COLUMNS = {"group_id": "GROUP", "result": "RESULT"}
_OFFSET_COLUMNS = {"topic": "TOPIC", "partition": "PARTITION", "result": "RESULT"}


def delete(reach: Reach, group_ids: Sequence[str], *, confirm: bool, as_json: bool) -> None:
    """Exits with 1 if a group was not deleted."""
    names = list(dict.fromkeys(group_ids))
    with reach.cluster() as cluster:
        if confirm:
            text = ", ".join(map(quoted, names))
            click.confirm(f"delete {text} with all offsets?", abort=True, err=as_json)
        problems = {name: _deleted(GroupAdmin(cluster), name) for name in names}
    rows: list[Row] = [
        {"type": "deletion", "group_id": name, "deleted": problem is None, "problem": problem}
        for name, problem in problems.items()
    ]
    _show(rows, _GROUP_COLUMNS, as_json=as_json)


def delete_offsets(reach: Reach, group_id: str, scope: Scope, *, confirm: bool, as_json: bool) -> None:
    """Exits with 1 if some offsets were not deleted."""
    with reach.cluster() as cluster:
        group = GroupAdmin(cluster).describe(group_id)
        if group.kind == SHARE and any(indexes is not None for indexes in scope.values()):
            raise ClientError(f"the offsets of share group {quoted(group_id)} are deleted by whole topics only")
        chosen = _chosen(cluster, group, scope)
        if confirm:
            text = printable(partitions_text(chosen))
            click.confirm(f"delete the offsets of group {quoted(group_id)} in {text}?", abort=True, err=as_json)
        rows: list[Row]
        if group.kind == SHARE:
            of_topics = delete_share_offsets(cluster, group_id, scope.keys())
            rows = [_offset_row(group_id, topic, None, problem) for topic, problem in sorted(of_topics.items())]
        else:
            found = delete_committed(cluster, group, chosen)
            rows = [_offset_row(group_id, at.topic, at.partition, problem) for at, problem in sorted(found.items())]
    _show(rows, _OFFSET_COLUMNS, as_json=as_json)


def _chosen(cluster: Cluster, group: GroupDescription, scope: Scope) -> Collection[TopicPartition]:
    """The partitions of the scope in which the group has an offset. Raises ClientError for a topic without any."""
    committed = sorted(positions(cluster, group))
    chosen: list[TopicPartition] = []
    for topic, indexes in scope.items():
        in_topic = [at for at in committed if at.topic == topic and (indexes is None or at.partition in indexes)]
        missing = set() if indexes is None else set(indexes) - {at.partition for at in in_topic}
        if missing or not in_topic:
            what = partitions_text(TopicPartition(topic, index) for index in sorted(missing)) or topic
            raise ClientError(
                printable(f"offset not found: group {quoted(group.group_id)} has none in {what}; nothing was deleted")
            )
        chosen += in_topic
    return chosen


def _deleted(admin: GroupAdmin, group_id: str) -> str | None:
    try:
        admin.delete(group_id)
    except ClientError as error:
        return error.message
    return None


def _offset_row(group_id: str, topic: str, partition: int | None, problem: str | None) -> Row:
    return {
        "type": "offset_deletion",
        "group_id": group_id,
        "topic": topic,
        "partition": partition,
        "deleted": problem is None,
        "problem": problem,
    }


def _show(rows: Sequence[Row], columns: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        show(rows, {}, as_json=True)
    else:
        show([{**row, "result": row["problem"] or "deleted"} for row in rows], columns, as_json=False)
    if not all(row["deleted"] for row in rows):
        raise click.exceptions.Exit(1)
