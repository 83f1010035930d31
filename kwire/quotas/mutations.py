"""The partitions that a request may create and delete, at controller_mutation_rate (KIP-599). `now_ms` is monotonic.

A strict request gets THROTTLING_QUOTA_EXCEEDED for what exceeds the quota. One in an earlier version is carried out,
and its client has to pause. In both cases a request may take more than is left, if anything is, and then no request
gets more until the bucket has filled up: a request for many partitions can be carried out at any quota.
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
        """Begins a decision. If it is repeated, since another one came first, gives back what the former one took."""
        if self._taken:
            self.bucket.take(-self._taken, self.bound, self.now_ms())
        self._taken = self._throttled_until_ms = 0

    def take(self, partitions: int) -> None:
        """Takes partitions. Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) if the request is strict and has to wait."""
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
        """The time in milliseconds for which the client has to pause from now on."""
        return max(self._throttled_until_ms - self.now_ms(), 0)


@attrs.define(eq=False)
class NoMutationQuota:
    """The `MutationQuota` of a client without a quota."""

    throttle_ms: int = 0

    def begin(self) -> None: ...

    def take(self, partitions: int) -> None: ...


def mutation_quota(
    meters: Meters[TokenBucket], client: Client, now_ms: Callable[[], int], *, is_strict: bool
) -> MutationQuota | NoMutationQuota:
    found = meters.find(client, now_ms())
    return NoMutationQuota() if found is None else MutationQuota(*found, is_strict, now_ms)
