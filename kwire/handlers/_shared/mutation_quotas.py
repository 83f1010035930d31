"""The quota of partitions that the client of a request may create and delete (KIP-599)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.quotas.client_quotas import Client
from kwire.quotas.mutations import MutationQuota, NoMutationQuota
from kwire.quotas.mutations import mutation_quota as quota_of

if TYPE_CHECKING:
    from kwire.handlers.context import Context
    from kwire.quotas.client_quotas import ClientQuotas
    from kwire.runtime.clock import Clock


def mutation_quota(
    client_quotas: ClientQuotas, clock: Clock, context: Context, *, strict_since: int
) -> MutationQuota | NoMutationQuota:
    """Returns the quota of a request. THROTTLING_QUOTA_EXCEEDED may be returned from version `strict_since` on."""
    return quota_of(
        client_quotas.mutations,
        Client(context.principal.name, context.client_id or ""),
        clock.monotonic_ms,
        is_strict=context.api_version >= strict_since,
    )
