"""The limits on connections of an address, and on the rate of new ones (KIP-612). Pure: `now_ms` is monotonic.

    rate of the broker, rate of a listener     the listener accepts no more until the rate is low enough again. The
                                               connection that exceeds the rate is served then
    rate of an address                         a connection that exceeds the rate is not served. It is closed after the
                                               throttle time of its address, so that the peer does not retry at once
    connections of an address                  a connection that exceeds the limit is closed at once

As in Kafka, no pause is longer than a sample. Connections at the brokers' own listener, if clients have another one, do
not count for the rate of the broker, so that brokers do not wait for the connections of clients.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from kwire.metadata.access import IP, QuotaEntity
from kwire.quotas.rates import Rate, Window

KEY: Final = "connection_creation_rate"

IDLE_MS: Final = 3_600_000
MOST_ADDRESSES: Final = 100_000
"""The maximum number of addresses with a rate. Above it, those idle longest are removed, as after IDLE_MS."""


@attrs.frozen
class ConnectionLimits:
    """The configured limits on connections per second, and on connections. Without a limit it is `UNLIMITED`."""

    rate: int
    rates_of_listeners: Mapping[str, int]
    per_address: int
    of_addresses: Mapping[str, int]
    """The limits of max.connections.per.ip.overrides, by address."""


@attrs.define(eq=False)
class ConnectionQuotas:
    """`limits` returns the current limits. `protected` is the brokers' own listener; None if clients use it."""

    window: Window
    limits: Callable[[], ConnectionLimits]
    protected: str | None = None
    _rates_of_addresses: dict[str | None, float] = attrs.field(factory=dict)
    """The quotas by address; that of None is for all others."""
    _broker: Rate = attrs.field(init=False)
    _listeners: dict[str, Rate] = attrs.field(factory=dict)
    _addresses: OrderedDict[str, tuple[Rate, int]] = attrs.field(factory=OrderedDict)
    """The rate of each address, and the time of its last connection, the earliest first."""

    def __attrs_post_init__(self) -> None:
        self._broker = Rate(self.window)

    def follow(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Takes over the quotas that are in the metadata now."""
        self._rates_of_addresses = {
            None if name is None else canonical(name): math.inf if math.isnan(values[KEY]) else values[KEY]
            for ((entity_type, name), *_), values in quotas.items()
            if entity_type == IP and KEY in values
        }

    def most_of(self, address: str) -> int:
        """Returns the maximum number of connections of an address."""
        limits = self.limits()
        return limits.of_addresses.get(canonical(address), limits.per_address)

    def pause_ms(self, listener: str, now_ms: int) -> int:
        """Records a new connection. Returns the time for which its listener has to pause before it serves any."""
        limits = self.limits()
        pause_ms = 0
        if listener != self.protected:
            self._broker.record(1, now_ms)
            pause_ms = self._broker.throttle_ms(limits.rate, now_ms)
        rate = self._listeners.setdefault(listener, Rate(self.window))
        rate.record(1, now_ms)
        pause_ms = max(pause_ms, rate.throttle_ms(limits.rates_of_listeners.get(listener, limits.rate), now_ms))
        return min(pause_ms, self.window.sample_ms)

    def refused_for_ms(self, listener: str, address: str, now_ms: int) -> int:
        """Returns the throttle time of the address if the connection is refused; 0 if it is served.

        A refused connection does not count for any rate.
        """
        address = canonical(address)
        bound = self._rates_of_addresses.get(address, self._rates_of_addresses.get(None, math.inf))
        if bound == math.inf:
            return 0
        rate, _ = self._addresses.pop(address, (None, 0))
        if rate is None:
            rate = Rate(self.window)
            self._forget_idle(now_ms)
        self._addresses[address] = rate, now_ms
        rate.record(1, now_ms)
        refused_ms = min(rate.throttle_ms(bound, now_ms), self.window.sample_ms)
        if refused_ms:
            rate.record(-1, now_ms)
            if listener != self.protected:
                self._broker.record(-1, now_ms)
            if listener in self._listeners:
                self._listeners[listener].record(-1, now_ms)
        return refused_ms

    def _forget_idle(self, now_ms: int) -> None:
        while self._addresses:
            _, last_ms = next(iter(self._addresses.values()))
            if now_ms - last_ms <= IDLE_MS and len(self._addresses) < MOST_ADDRESSES:
                break
            self._addresses.popitem(last=False)


def canonical(address: str) -> str:
    """Returns the same text for the same address. An IPv4-mapped IPv6 address becomes the IPv4 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address  # a name, which is never the address of a peer
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
