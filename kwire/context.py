"""What a handler knows about the connection that a request came by, and how it ends that connection."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kwire.security.principal import ANONYMOUS, Principal


@attrs.define(eq=False)
class Context:
    """One request's surroundings. The connection keeps a single one and updates it: it answers in order.

    `local_host` and `local_port` are the address that the client dialled; it is what Metadata tells it, unless
    advertised.listeners says otherwise. `served_versions` are the APIs of its listener, by their keys.
    """

    client_host: str
    local_host: str
    local_port: int
    listener_name: str = "PLAINTEXT"
    served_versions: Mapping[int, range] = attrs.field(factory=dict)
    api_key: int = -1
    api_version: int = -1
    client_id: str | None = None
    principal: Principal = ANONYMOUS


class CloseConnection(Exception):
    """Raised by a handler: the connection is closed without an answer, and the reason is one line of the log."""
