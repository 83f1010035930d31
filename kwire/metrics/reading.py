"""All metrics of a broker, at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kwire.metrics import groups, shares
from kwire.metrics.metric import Family

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.share.coordinator.service import ShareStateService
    from kwire.share.leader.service import SharingService

METRICS: Final = (*groups.METRICS, *shares.METRICS)


class Services(Protocol):
    """The services of a broker that have metrics."""

    @property
    def groups(self) -> GroupService: ...

    @property
    def sharing(self) -> SharingService: ...

    @property
    def share_state(self) -> ShareStateService: ...


async def read(services: Services) -> list[Family]:
    """Returns every metric once, in the order of `METRICS`. Reads in slices, so that other work has its turn."""
    return [
        *await groups.read(services.groups),
        *await shares.read_sharing(services.sharing),
        *shares.read_states(services.share_state),
    ]
