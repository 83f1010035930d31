"""All metrics of a broker, at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kwire.metrics import groups, shares
from kwire.metrics.metric import Family

if TYPE_CHECKING:
    from kwire.node.broker import Broker

METRICS: Final = (*groups.METRICS, *shares.METRICS)


async def read(broker: Broker) -> list[Family]:
    """Returns every metric once, in the order of `METRICS`. Reads in slices, so that other work has its turn."""
    return [
        *await groups.read(broker.groups),
        *await shares.read_sharing(broker.sharing),
        *shares.read_states(broker.share_state),
    ]
