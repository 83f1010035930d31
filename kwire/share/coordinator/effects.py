"""The effect that only the share coordinator has."""

from __future__ import annotations

import attrs

from kwire.coordinators.effects import Effect


@attrs.frozen(eq=False)
class Prune(Effect):
    """Deletes the records of the shard's partition below that offset. The outcome goes to `ShareStateShard.pruned`."""

    before_offset: int
