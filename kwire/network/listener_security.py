"""How a listener's connections are secured: what carries their bytes, and whether they have to say who they are."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kwire.network.transport import NewTransport, PlainTransport
from kwire.security.sasl.exchange import SaslSession


@attrs.define(eq=False)
class ListenerSecurity:
    """`new_transport` makes the transport of an accepted socket. `new_session` begins its authentication by SASL; None:
    there is none."""

    new_transport: NewTransport = PlainTransport
    new_session: Callable[[], SaslSession] | None = None
