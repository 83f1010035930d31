"""A member of a share group as values: its request and its current assignment.

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
    """The member's request."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()


@attrs.frozen
class CurrentAssignment:
    """The member's partitions. It takes all of its target at once: no other member has to give up anything first."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    assigned: Assignment = NOTHING

    def moved_to(self, epoch: int, assigned: Assignment) -> CurrentAssignment:
        """Returns the next one. Its previous epoch is this one's, to recognize a member whose response was lost."""
        return CurrentAssignment(epoch, self.epoch, assigned)


NEW_MEMBER: Final = CurrentAssignment()
