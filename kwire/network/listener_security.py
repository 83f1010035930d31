"""How a listener's connections are secured: what carries their bytes, and whether they have to say who they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from kwire.network.transport import NewTransport, PlainTransport
from kwire.security.sasl.exchange import SaslSession

if TYPE_CHECKING:
    from kwire.broker import Broker


@attrs.define(eq=False)
class ListenerSecurity:
    """`new_transport` makes the transport of an accepted socket. `new_session` begins its authentication by SASL; None:
    there is none."""

    new_transport: NewTransport = PlainTransport
    new_session: Callable[[], SaslSession] | None = None


def securities_of(broker: Broker) -> dict[str, ListenerSecurity]:
    """By name, those of the listeners that are not in plain text for everybody."""
    securities: dict[str, ListenerSecurity] = {}
    if broker.config.sasl:
        from kwire.network.sasl_mechanisms import SaslListener, random_bytes

        secret = random_bytes(broker.clock)
        for name in broker.config.sasl:
            securities[name] = ListenerSecurity(new_session=SaslListener(broker, name, secret).new_session)
    return securities
