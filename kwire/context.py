"""What a handler may know about the connection that a request came by, and the way to wait on it.

No trio here: the connection hands in a `Parking`, so that a handler's test can hand in a fake one.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import attrs

T = TypeVar("T")


class Slot(Protocol[T]):
    """A value that somebody will set once; see `kwire.waits.Slot`."""

    def set(self, value: T) -> None: ...

    async def get(self) -> T: ...


class Wakeable(Protocol):
    """Something parked that an event (an append, a new high watermark) can wake."""

    def wake(self) -> None: ...


class Parking(Protocol):
    """How a connection waits. Replies that are ready are sent before any waiting begins."""

    def waiter(self) -> ParkedRequest:
        """A wakeable that this connection can park on."""
        ...

    async def wait_for(self, slot: Slot[T]) -> T:
        """Waits for `slot` without reading further requests, as Kafka's muted channel does."""
        ...


class ParkedRequest(Wakeable, Protocol):
    async def wait(self, timeout_s: float) -> bool:
        """True when woken; False when `timeout_s` is over, or when the peer sends its next request or hangs up."""
        ...


@attrs.define(eq=False)
class Context:
    """One request's surroundings. The connection keeps a single one and updates it: it answers in order.

    `local_host` and `local_port` are the address that the client dialled; it is what Metadata tells it, unless
    advertised.listeners says otherwise.
    """

    parking: Parking
    client_host: str
    local_host: str
    local_port: int
    listener_name: str = "PLAINTEXT"
    api_key: int = -1
    api_version: int = -1
    client_id: str | None = None
