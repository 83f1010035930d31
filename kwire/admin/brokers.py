"""Unregisters brokers that do not come back (UnregisterBroker, KIP-631)."""

from __future__ import annotations

from kwire_protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

from kwire.admin.cluster_state import ClusterState
from kwire.admin.partitions import PartitionState
from kwire.client.cluster import Cluster
from kwire.client.errors import ConnectionFailed, refused


def only_at(state: ClusterState, node_id: int) -> list[PartitionState]:
    """The partitions whose records are lost with a broker: no other broker has a replica, or none that is in sync."""
    return [it for it in state.partitions if node_id in it.replicas and {*it.isr} <= {node_id}]


def unregister_broker(cluster: Cluster, node_id: int) -> None:
    """Removes a broker from the cluster's list. Its replicas stay assigned to it. Raises ClientError."""

    def unregister() -> None:
        try:
            answer: UnregisterBrokerResponse = cluster.call(UnregisterBrokerRequest(node_id))
        except ConnectionFailed as error:
            # The broker may have been removed. A second request would fail, because the cluster has no such broker.
            error.may_pass = False
            raise
        if answer.error_code:
            raise refused(f"broker {node_id} is not forgotten", answer.error_code, answer.error_message)

    cluster.until_done(unregister)
