"""What a member of a share group is, as values: what it asked for, and what it has.

Both are frozen, and each is one record of `__consumer_offsets` (`changes.py`).
"""

from __future__ import annotations

from typing import Final

import attrs

from kwire.groups.assignors.assignor import Assignment

NOTHING: Final[Assignment] = {}

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1


@attrs.frozen
class ShareMember:
    """What the member asked for."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()


@attrs.frozen
class CurrentAssignment:
    """What the member has. It takes all of its target at once: nobody has to give anything up first."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    assigned: Assignment = NOTHING

    def moved_to(self, epoch: int, assigned: Assignment) -> CurrentAssignment:
        """The next one. Its previous epoch is this one's, so that a member whose response was lost is recognized."""
        return CurrentAssignment(epoch, self.epoch, assigned)


NEW_MEMBER: Final = CurrentAssignment()
