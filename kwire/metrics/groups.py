"""Metrics of groups of all types: their numbers by state, and their events. Kafka's `GroupCoordinatorMetrics`.

A type is only a name here, so that a new one is counted without a change. The groups are counted in slices: one that
changes its state meanwhile may be counted in the old or in the new state.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kwire.groups.group import GroupType
from kwire.groups.service import GroupService
from kwire.metrics.coordinators import CoordinatorMetrics
from kwire.metrics.metric import Family, Metric, MetricType
from kwire.names.topic_names import CONSUMER_OFFSETS
from kwire.runtime.tasks import TimeSlice

STATES: Final = {
    "classic": ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
    "streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
}
"""The states of each type, by their names in ListGroups. These metrics exist from the start, with 0, as in Kafka."""

_COORDINATOR: Final = CoordinatorMetrics("group", CONSUMER_OFFSETS)
_PREFIX: Final = _COORDINATOR.prefix
_BEAN: Final = _COORDINATOR.bean
_CLASSIC_PREFIX: Final = "kafka_coordinator_group_groupmetadatamanager_"
_CLASSIC_BEAN: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="


def _counter(name: str, kafka: str, what: str) -> Metric:
    return Metric(f"{_PREFIX}{name}_total", MetricType.COUNTER, what, kafka=f"{_BEAN} {kafka}")


GROUPS: Final = Metric(
    f"{_PREFIX}group_count",
    MetricType.GAUGE,
    "Groups that this broker coordinates, by kind.",
    ("protocol",),
    f"{_BEAN},protocol=* group-count",
)
CLASSIC_GROUPS: Final = Metric(
    f"{_CLASSIC_PREFIX}numgroups",
    MetricType.GAUGE,
    "Classic groups.",
    kafka=f"{_CLASSIC_BEAN}NumGroups",
)
CLASSIC_STATES: Final = {
    state: Metric(
        f"{_CLASSIC_PREFIX}numgroups{state.lower()}",
        MetricType.GAUGE,
        f"Classic groups in state {state}.",
        kafka=f"{_CLASSIC_BEAN}NumGroups{state}",
    )
    for state in STATES["classic"]
}
STATES_OF: Final = {
    kind: Metric(
        f"{_PREFIX}{kind}_group_count",
        MetricType.GAUGE,
        f"{kind.capitalize()} groups, by state.",
        ("state",),
        f"{_BEAN},state=* {kind}-group-count",
    )
    for kind in STATES
    if kind != "classic"
}
OFFSETS: Final = Metric(
    f"{_CLASSIC_PREFIX}numoffsets",
    MetricType.GAUGE,
    "Committed offsets of all groups.",
    kafka=f"{_CLASSIC_BEAN}NumOffsets",
)
COMMITS: Final = _counter("offset_commit", "offset-commit-count", "Offsets that were committed.")
EXPIRATIONS: Final = _counter("offset_expiration", "offset-expiration-count", "Committed offsets that have expired.")
DELETIONS: Final = _counter("offset_deletion", "offset-deletion-count", "Offsets that were deleted by OffsetDelete.")
REBALANCES: Final = {
    "classic": _counter(
        "group_completed_rebalance", "group-completed-rebalance-count", "Completed rebalances of classic groups."
    ),
    **{
        kind: _counter(
            f"{kind}_group_rebalance",
            f"{kind}-group-rebalance-count",
            f"Group epochs of {kind} groups that began.",
        )
        for kind in STATES
        if kind != "classic"
    },
}

METRICS: Final = (
    GROUPS,
    *STATES_OF.values(),
    CLASSIC_GROUPS,
    *CLASSIC_STATES.values(),
    *REBALANCES.values(),
    OFFSETS,
    COMMITS,
    EXPIRATIONS,
    DELETIONS,
    *_COORDINATOR.metrics,
)


async def read(groups: GroupService) -> list[Family]:
    found, offsets = await _count(groups)
    of_kind = Counter(dict.fromkeys(STATES, 0))
    for (kind, _), count in found.items():
        of_kind[kind] += count
    counts = groups.counts
    rebalances = {kind.value: count for kind, count in counts.rebalances.items()}
    return [
        Family(GROUPS, [((kind,), count) for kind, count in of_kind.items()]),
        *(
            Family(metric, [((state,), found[kind, state]) for state in STATES[kind]])
            for kind, metric in STATES_OF.items()
        ),
        Family.single(CLASSIC_GROUPS, of_kind[GroupType.CLASSIC.value]),
        *(Family.single(metric, found[GroupType.CLASSIC.value, state]) for state, metric in CLASSIC_STATES.items()),
        *(Family.single(metric, rebalances.get(kind, 0)) for kind, metric in REBALANCES.items()),
        Family.single(OFFSETS, offsets),
        Family.single(COMMITS, counts.offset_commits),
        Family.single(EXPIRATIONS, counts.offset_expirations),
        Family.single(DELETIONS, counts.offset_deletions),
        *_COORDINATOR.read(groups.runtime),
    ]


async def _count(groups: GroupService) -> tuple[Counter[tuple[str, str]], int]:
    """Returns the number of groups by type and state, and the number of committed offsets."""
    found: Counter[tuple[str, str]] = Counter()
    offsets = 0
    time_slice = TimeSlice()
    for _, shard in groups.runtime.in_service():
        offsets += shard.offset_count
        for group in list(shard.groups.values()):
            found[group.type.value, group.state_name()] += 1
            if time_slice.is_over:
                await time_slice.yield_to_others()
    return found, offsets
