"""Elections: the leader of a partition after its in-sync replicas, or the brokers that may lead, have changed.

A clean election is safe at any time and on any broker, because every replica in the ISR has everything acknowledged. So
has every eligible leader replica (KIP-966, `eligible_replicas.py`), which may lead when no replica is in sync. If there
is neither, the last leader is elected when it is back, although it may have lost records. That does not require
`unclean.leader.election.enable`, which allows any replica. As in Kafka's `PartitionChangeBuilder`.

Without eligible leader replicas, the last member of an ISR stays in it when it fails: it is the only one that may lead
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto

import attrs

from kwire.metadata.image import NO_LEADER

MayLead = Callable[[int], bool]
"""Returns True if a broker may lead now: it is registered, not fenced, and not shutting down."""


class Election(Enum):
    """ONLINE keeps a leader that may lead; PREFERRED prefers the first replica; UNCLEAN may go outside the ISR."""

    ONLINE = auto()
    PREFERRED = auto()
    UNCLEAN = auto()


@attrs.frozen
class Elected:
    """The elected leader. With `is_unclean` it may lack records that were acknowledged."""

    leader: int
    is_unclean: bool = False


def elect(
    current: int,
    replicas: Sequence[int],
    isr: Collection[int],
    may_lead: MayLead,
    election: Election = Election.ONLINE,
    *,
    elr: Collection[int] = (),
    last_leader: int = NO_LEADER,
) -> Elected:
    """Elects the leader of a partition that `current` leads; NO_LEADER if no replica may lead.

    `last_leader` is the one that the partition lost; NO_LEADER if it does not count.
    """
    have_everything = isr or elr

    def is_valid(broker_id: int) -> bool:
        return broker_id in have_everything and may_lead(broker_id)

    if election is Election.PREFERRED and replicas and is_valid(replicas[0]):
        return Elected(replicas[0])
    if is_valid(current):
        return Elected(current)
    clean = next(filter(is_valid, replicas), None)
    if clean is not None:
        return Elected(clean)
    if not have_everything and last_leader in replicas and may_lead(last_leader):
        return Elected(last_leader, is_unclean=True)
    if election is Election.UNCLEAN:
        unclean = next(filter(may_lead, replicas), None)
        if unclean is not None:
            return Elected(unclean, is_unclean=True)
    return Elected(NO_LEADER)
