"""A replay that has begun."""

from __future__ import annotations

from kwire.pipeline.replay.pinned import Pinned, PinnedTopic

PINNED = Pinned(
    run="r1",
    generation=2,
    state="running",
    command={"topic": "orders", "--where": None},
    source=PinnedTopic("cluster", "id", {0: (10, 100), 1: (0, 50)}),
    target_id="t",
    partitions=3,
)
