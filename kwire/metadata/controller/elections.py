"""Elections: who leads a partition after its in-sync replicas, or the brokers that may lead, have changed.

A clean election is safe at any time and by anybody, because every replica in the ISR has everything that was
acknowledged. The last member of an ISR stays in it when it fails: it is the only one that may lead again, unless
`unclean.leader.election.enable` allows any replica, which loses records. As in Kafka's `PartitionChangeBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto

import attrs

from kwire.metadata.image import NO_LEADER

MayLead = Callable[[int], bool]
"""Whether a broker may lead now: it is registered, not fenced, and not shutting down."""


class Election(Enum):
    """ONLINE keeps a leader that may lead; PREFERRED prefers the first replica; UNCLEAN may go outside the ISR."""

    ONLINE = auto()
    PREFERRED = auto()
    UNCLEAN = auto()


@attrs.frozen
class Elected:
    """`is_unclean`: it was not in sync, and records may be lost."""

    leader: int
    is_unclean: bool = False


def elect(
    current: int, replicas: Sequence[int], isr: Sequence[int], may_lead: MayLead, election: Election = Election.ONLINE
) -> Elected:
    """The leader of a partition that is led by `current` (NO_LEADER if nobody may lead)."""

    def is_valid(broker_id: int) -> bool:
        return broker_id in isr and may_lead(broker_id)

    if election is Election.PREFERRED and replicas and is_valid(replicas[0]):
        return Elected(replicas[0])
    if is_valid(current):
        return Elected(current)
    clean = next(filter(is_valid, replicas), None)
    if clean is not None:
        return Elected(clean)
    if election is Election.UNCLEAN:
        unclean = next(filter(may_lead, replicas), None)
        if unclean is not None:
            return Elected(unclean, is_unclean=True)
    return Elected(NO_LEADER)
