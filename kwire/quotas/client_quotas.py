"""The usage of the clients of this broker, and the clients over their quotas. Pure: `now_ms` is monotonic.

Each kind of quota has a meter for each group of clients that share one. A meter is created by its first client, and
removed when it was unused for an hour, as in Kafka. A changed quota applies at once, also to earlier usage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

import attrs

from kwire.metadata.access import IP, QuotaEntity
from kwire.quotas.entities import QuotasOfClients, Sharers
from kwire.quotas.rates import Rate, TokenBucket, Window

IDLE_MS: Final = 3_600_000
"""The time after which an unused meter is removed."""

MOST_METERS: Final = 100_000
"""The maximum number of meters of one kind. Above it, those idle longest are removed: client ids are arbitrary."""

M = TypeVar("M")


@attrs.frozen
class Client:
    """The client of a request: the name of the principal, and the client id, which is empty if there is none."""

    user: str
    client_id: str


@attrs.define(eq=False)
class _Used(Generic[M]):
    meter: M
    used_ms: int


@attrs.define(eq=False)
class Meters(Generic[M]):
    """The quotas with one key, and a meter of the usage of each."""

    key: str
    new_meter: Callable[[], M]
    quotas: QuotasOfClients = attrs.field(factory=QuotasOfClients)
    _used: dict[Sharers, _Used[M]] = attrs.field(factory=dict)
    """The meters in use; the one that is idle longest comes first."""

    def find(self, client: Client, now_ms: int) -> tuple[M, float] | None:
        """The meter of a client, and its bound; None if the client has no quota."""
        found = self.quotas.find(client.user, client.client_id)
        if found is None:
            return None
        sharers, bound = found
        used = self._used.pop(sharers, None)
        if used is None or now_ms - used.used_ms > IDLE_MS:
            used = _Used(self.new_meter(), now_ms)
            self._forget_idle(now_ms)
        used.used_ms = now_ms
        self._used[sharers] = used
        return used.meter, bound

    def _forget_idle(self, now_ms: int) -> None:
        while self._used:
            sharers, oldest = next(iter(self._used.items()))
            if now_ms - oldest.used_ms <= IDLE_MS and len(self._used) < MOST_METERS:
                break
            del self._used[sharers]

    def __len__(self) -> int:
        return len(self._used)


class Rates(Meters[Rate]):
    """A kind of quota that is a rate."""

    def record(self, client: Client, value: float, now_ms: int) -> int:
        """Records usage. Returns the client's throttle time in milliseconds; 0 if it need not pause."""
        found = self.find(client, now_ms)
        if found is None:
            return 0
        rate, bound = found
        rate.record(value, now_ms)
        return rate.throttle_ms(bound, now_ms)

    def throttle_before(self, client: Client, value: float, now_ms: int) -> int:
        """Returns the throttle time of the client before it gets that much. Records nothing, in contrast to `record`.

        A value that exceeds the quota of an idle client needs no pause: otherwise the client would never get it,
        however long it waits. (In Apache Kafka it never does.)
        """
        found = self.find(client, now_ms)
        if found is None:
            return 0
        rate, bound = found
        if rate.is_empty(now_ms):
            return 0
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(bound, now_ms)
        rate.record(-value, now_ms)
        return throttle_ms

    def most_at_once(self, client: Client, now_ms: int) -> float | None:
        """Returns the maximum for one response: all that the quota allows in a window. None without a quota."""
        found = self.find(client, now_ms)
        if found is None:
            return None
        rate, bound = found
        return bound * (rate.window.samples - 1) * rate.window.sample_ms / 1000


@attrs.define(eq=False)
class ClientQuotas:
    """All kinds of quotas of users and client ids. `window` is for the rates, `controller_window` for mutations.

    `running_ns` returns the time for which a handler ran.
    """

    window: Window
    controller_window: Window
    running_ns: Callable[[], int]
    produced: Rates = attrs.field(init=False)
    fetched: Rates = attrs.field(init=False)
    request_percentage: Rates = attrs.field(init=False)
    """The share of the event loop's time; 100 is all of it."""
    mutations: Meters[TokenBucket] = attrs.field(init=False)
    are_set: bool = False
    """True if any quota is set."""

    def __attrs_post_init__(self) -> None:
        def new_rate() -> Rate:
            return Rate(self.window)

        self.produced = Rates("producer_byte_rate", new_rate)
        self.fetched = Rates("consumer_byte_rate", new_rate)
        self.request_percentage = Rates("request_percentage", new_rate)
        self.mutations = Meters("controller_mutation_rate", lambda: TokenBucket(self.controller_window))

    def follow(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Takes over the quotas that are in the metadata now."""
        kinds = (self.produced, self.fetched, self.request_percentage, self.mutations)
        for kind in kinds:
            kind.quotas = QuotasOfClients.read(quotas, kind.key)
        self.are_set = any(kind.quotas for kind in kinds)


def concerns_clients(entity: QuotaEntity) -> bool:
    return all(entity_type != IP for entity_type, _ in entity)
