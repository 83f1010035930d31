"""The security of a client's connections: TLS, authentication by SASL, both, or neither.

`kwire.config.client_security` makes it from the settings of Kafka's clients.
"""

from __future__ import annotations

import attrs

from kwire.client.login import NewExchange
from kwire.client.transport import Connect, NewContext, connect_plain_text, connect_tls


@attrs.frozen
class ClientSecurity:
    """`new_context` makes the TLS context; None: plain text. `new_exchange` begins the authentication by SASL; None:
    the broker does not require it."""

    new_context: NewContext | None = None
    new_exchange: NewExchange | None = None

    @property
    def connect(self) -> Connect:
        """The `Connect` of threads. `kwire.peers.connecting.connect_with` is the same for tasks of trio."""
        return connect_plain_text if self.new_context is None else connect_tls(self.new_context)


PLAIN_TEXT = ClientSecurity()
"""A connection without TLS and SASL."""
