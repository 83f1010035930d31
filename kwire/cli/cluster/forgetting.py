"""`kwire cluster forget`: removes a broker that does not come back."""

from __future__ import annotations

import click

from kwire.admin.brokers import only_at, unregister_broker
from kwire.admin.cluster_state import NodeState, describe_cluster
from kwire.cli.cluster.showing import names_text
from kwire.cli.columns import printable
from kwire.cli.reaching import Reach
from kwire.client.errors import ClientError


def forget(reach: Reach, node_id: int, *, force: bool, confirm: bool) -> None:
    """Raises ClientError for a broker in service, and unless forced, for one with records that no other broker has."""
    with reach.cluster() as cluster:
        state = describe_cluster(cluster)
        node = state.node(node_id)
        if node is not None and node.state is NodeState.IN_SERVICE:
            raise ClientError(f"broker {node_id} is in service: stop it before it is forgotten")
        lost = names_text([printable(str(it.at)) for it in only_at(state, node_id)])
        if lost and not force:
            raise ClientError(
                f"no other broker has all records of {lost}: start broker {node_id}, and move them to other brokers "
                f"by `kwire cluster move`. --force forgets it nevertheless"
            )
        if confirm:
            click.confirm(_consequences(node_id, 0 if node is None else node.replicas, lost), abort=True)
        unregister_broker(cluster, node_id)
        click.echo(f"broker {node_id} is forgotten")


def _consequences(node_id: int, replicas: int, lost: str) -> str:
    lines = [f"Broker {node_id} is not listed any more. If it is started again, it registers again."]
    if replicas:
        lines.append(f"Partitions that keep a replica there, and are under-replicated until moved: {replicas}.")
    if lost:
        lines.append(f"No other broker has all records of {lost}: they are lost with broker {node_id}.")
    return "\n".join([*lines, f"forget broker {node_id}?"])
