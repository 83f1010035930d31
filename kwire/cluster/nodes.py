"""The nodes of the cluster, for clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from kwire.cluster.member import ClusterMember
    from kwire.metadata.service import MetadataService


@attrs.frozen
class NodeEndpoint:
    """The address at which clients reach a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClientConnection(Protocol):
    """The listener that a client uses, and the address of this node that it connected to."""

    @property
    def listener_name(self) -> str: ...

    @property
    def local_host(self) -> str: ...

    @property
    def local_port(self) -> int: ...


@attrs.frozen
class Nodes:
    """The nodes of the cluster. `member` is this node's membership if there are several nodes, or else None."""

    metadata: MetadataService
    member: ClusterMember | None

    @property
    def controller_id(self) -> int:
        """The controller: this node, if it is alone; -1 if none is known."""
        return self.metadata.node_id if self.member is None else self.member.membership.controller_id

    @property
    def is_controller(self) -> bool:
        """True if this node does the work of the controller."""
        return self.member is None or self.member.is_controller

    def endpoints(self, connection: ClientConnection) -> list[NodeEndpoint]:
        """The address of every broker in service, as advertised on the client's listener.

        If nothing is advertised, this node's address is the one that the client connected to. If no broker is in
        service, it is this one, which has just started or is about to end: a client that gets no broker may never
        retry.
        """
        image, config = self.metadata.image, self.metadata.config
        brokers = image.live_brokers() or [it for it in (image.brokers.get(config.node_id),) if it is not None]
        return [
            NodeEndpoint(config.node_id, connection.local_host, connection.local_port, config.broker_rack)
            if broker.broker_id == config.node_id and not config.advertised_listeners
            else NodeEndpoint(
                broker.broker_id,
                broker.endpoints[connection.listener_name].host,
                broker.endpoints[connection.listener_name].port,
                broker.rack,
            )
            for broker in brokers
            if connection.listener_name in broker.endpoints
        ]
