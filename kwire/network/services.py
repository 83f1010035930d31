"""The parts of a node that its network uses. Handlers are bound to others, by name (`kwire.handlers.apis.bound`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kwire.config.server import ServerConfig
    from kwire.metadata.service import MetadataService
    from kwire.quotas.client_quotas import ClientQuotas
    from kwire.runtime.clock import Clock
    from kwire.security.audit import AuditLog


class Node(Protocol):
    """A `Broker`, or a part of one in a test."""

    clock: Clock
    metadata: MetadataService
    client_quotas: ClientQuotas
    audit: AuditLog

    @property
    def config(self) -> ServerConfig: ...
