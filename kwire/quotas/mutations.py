"""How many partitions a request may create and delete, at controller_mutation_rate (KIP-599). `now_ms` is monotonic.

A request that is strict gets THROTTLING_QUOTA_EXCEEDED for what exceeds the quota. One in an earlier version gets what
it asks for, and its client has to pause. In both cases more may be taken than there is left, if anything is, and then
nobody gets more until the bucket has filled up: a request for many partitions can be carried out at any quota.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.quotas.client_quotas import Client, Meters
from kwire.quotas.rates import TokenBucket


@attrs.define(eq=False)
class MutationQuota:
    """The quota of one request; a `kwire.metadata.controller.deciding.Mutations`."""

    bucket: TokenBucket
    bound: float
    is_strict: bool
    now_ms: Callable[[], int]
    _taken: int = 0
    _throttled_until_ms: int = 0

    def begin(self) -> None:
        """The decision is made, or made again, since another one was first. Then nothing came of the one before."""
        if self._taken:
            self.bucket.take(-self._taken, self.bound, self.now_ms())
        self._taken = self._throttled_until_ms = 0

    def take(self, partitions: int) -> None:
        """Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) if the request is strict, and has to wait."""
        now_ms = self.now_ms()
        if self.is_strict:
            throttle_ms = self.bucket.throttle_ms(self.bound, now_ms)
            if throttle_ms:
                self._throttled_until_ms = now_ms + throttle_ms
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"More partitions are created and deleted than the quota allows: try again in {throttle_ms} ms.",
                )
        self.bucket.take(partitions, self.bound, now_ms)
        self._taken += partitions
        if not self.is_strict:
            throttle_ms = self.bucket.throttle_ms(self.bound, now_ms)
            if throttle_ms:
                self._throttled_until_ms = now_ms + throttle_ms

    @property
    def throttle_ms(self) -> int:
        """For how long the client has to pause, from now on."""
        return max(self._throttled_until_ms - self.now_ms(), 0)


@attrs.define(eq=False)
class NoMutationQuota:
    """Of a client without one."""

    throttle_ms: int = 0

    def begin(self) -> None: ...

    def take(self, partitions: int) -> None: ...


def mutation_quota(
    meters: Meters[TokenBucket], client: Client, now_ms: Callable[[], int], *, is_strict: bool
) -> MutationQuota | NoMutationQuota:
    found = meters.find(client, now_ms())
    return NoMutationQuota() if found is None else MutationQuota(*found, is_strict, now_ms)
