"""`kwire cluster status`: the brokers, and the partitions that need attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from kwire.admin.cluster_state import ClusterState, Node, NodeState, describe_cluster
from kwire.admin.partitions import PartitionState
from kwire.admin.reassignments import Reassignment
from kwire.cli.columns import Row, printable, show
from kwire.cli.reaching import Reach

MAX_NAMES: Final = 10

_NODE_COLUMNS = {
    "node_id": "NODE",
    "address": "ADDRESS",
    "rack": "RACK",
    "state": "STATE",
    "leads": "LEADS",
    "replicas": "REPLICAS",
    "role": "",
}
_STATES = {
    NodeState.IN_SERVICE: "in service",
    NodeState.FENCED: "fenced",
    NodeState.MISSING: "missing",
}


def show_status(reach: Reach, *, as_json: bool, all_names: bool) -> None:
    """Exits with 1 if a partition needs attention."""
    with reach.cluster() as cluster:
        state = describe_cluster(cluster)
    for note in state.notes:
        click.echo(f"note: {printable(note)}", err=True)
    if as_json:
        show(_json_rows(state), {}, as_json=True)
    else:
        _show_text(state, limit=len(state.partitions) if all_names else MAX_NAMES)
    if not state.is_healthy:
        raise click.exceptions.Exit(1)


def nodes_text(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids)) or "none"


def names_text(names: Sequence[str], limit: int = MAX_NAMES) -> str:
    """Returns the first names, and the number of others."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def reassignment_text(it: Reassignment) -> str:
    return printable(f"{it.at} ({nodes_text(it.before)} -> {nodes_text(it.target)})")


def _show_text(state: ClusterState, *, limit: int) -> None:
    topics = len({it.at.topic for it in state.partitions})
    click.echo(f"cluster     {printable(state.cluster_id or '-')}")
    click.echo(f"controller  {_controller_text(state)}")
    click.echo(f"topics      {topics} with {len(state.partitions)} partitions\n")
    show([_node_text(state, it) for it in state.nodes], _NODE_COLUMNS, as_json=False)
    click.echo()
    named: list[tuple[str, Sequence[str] | None]] = [
        ("offline", [printable(str(it.at)) for it in state.offline]),
        ("under-replicated", [_isr_text(it) for it in state.under_replicated]),
        ("below min.insync.replicas", [_isr_text(it) for it in state.below_min_isr]),
        ("reassignments", None if state.reassignments is None else list(map(reassignment_text, state.reassignments))),
    ]
    hidden = False
    for what, names in named:
        if names is None:
            click.echo(f"{what:27}not known")
            continue
        click.echo(f"{what:27}{len(names):<5} {names_text(names, limit)}".rstrip())
        hidden |= len(names) > limit
    if hidden:
        click.echo("\nkwire cluster status --all names all of them")


def _controller_text(state: ClusterState) -> str:
    if state.controller_id is None:
        return "none, or not known"
    return f"{state.controller_id}" + ("" if state.node(state.controller_id) else " (not a broker)")


def _isr_text(it: PartitionState) -> str:
    return printable(f"{it.at} (in sync {nodes_text(it.isr)} of {nodes_text(it.replicas)})")


def _node_text(state: ClusterState, it: Node) -> Row:
    return {
        "node_id": it.node_id,
        "address": None if it.host is None else f"{it.host}:{it.port}",
        "rack": it.rack,
        "state": _STATES[it.state],
        "leads": it.leads,
        "replicas": it.replicas,
        "role": "controller" if it.node_id == state.controller_id else "",
    }


def _json_rows(state: ClusterState) -> list[Row]:
    rows: list[Row] = [
        {
            "type": "cluster",
            "cluster_id": state.cluster_id,
            "controller_id": state.controller_id,
            "healthy": state.is_healthy,
            "nodes": len(state.nodes),
            "topics": len({it.at.topic for it in state.partitions}),
            "partitions": len(state.partitions),
            "offline": len(state.offline),
            "under_replicated": len(state.under_replicated),
            "below_min_isr": len(state.below_min_isr),
            "reassignments": None if state.reassignments is None else len(state.reassignments),
            "notes": list(state.notes),
        }
    ]
    rows += [
        {
            "type": "node",
            "node_id": it.node_id,
            "host": it.host,
            "port": it.port,
            "rack": it.rack,
            "state": it.state.value,
            "controller": it.node_id == state.controller_id,
            "leads": it.leads,
            "replicas": it.replicas,
        }
        for it in state.nodes
    ]
    rows += [
        {
            "type": "partition",
            "topic": it.at.topic,
            "partition": it.at.partition,
            "leader_id": it.leader_id,
            "replicas": list(it.replicas),
            "isr": list(it.isr),
            "min_isr": it.min_isr,
            "offline": it.is_offline,
            "under_replicated": it.is_under_replicated,
            "below_min_isr": it.is_below_min_isr,
        }
        for it in state.partitions
        if it.needs_attention
    ]
    rows += [reassignment_row(it) for it in state.reassignments or ()]
    return rows


def reassignment_row(it: Reassignment) -> dict[str, object]:
    return {
        "type": "reassignment",
        "topic": it.at.topic,
        "partition": it.at.partition,
        "replicas": list(it.replicas),
        "adding": list(it.adding),
        "removing": list(it.removing),
        "target": list(it.target),
    }
