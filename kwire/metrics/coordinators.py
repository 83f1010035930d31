"""Metrics of the partitions of an internal topic, and of their loading. Kafka's `CoordinatorRuntimeMetricsImpl`.

Kafka's other metrics of its runtime are about its threads, its queue of events and its batches. kwire has none of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from kwire.coordinators.loading import Active, Loading, Unavailable
from kwire.coordinators.runtime import CoordinatorRuntime
from kwire.metrics.metric import Family, Metric, MetricType

_STATES: dict[type, str] = {Loading: "loading", Active: "active", Unavailable: "failed"}


@attrs.frozen
class CoordinatorMetrics:
    """`kind` is the first word of the name of Kafka's group of metrics, `topic` the internal topic."""

    kind: str
    topic: str

    @property
    def bean(self) -> str:
        return f"kafka.server:type={self.kind}-coordinator-metrics"

    @property
    def prefix(self) -> str:
        return f"kafka_server_{self.kind}_coordinator_metrics_"

    @property
    def partitions(self) -> Metric:
        return Metric(
            f"{self.prefix}num_partitions",
            MetricType.GAUGE,
            f"Partitions of {self.topic} that this broker coordinates, or would if it could read them.",
            ("state",),
            f"{self.bean},state=* num-partitions",
        )

    @property
    def load_times(self) -> Metric:
        return Metric(
            f"{self.prefix}partition_load_time_seconds",
            MetricType.SUMMARY,
            f"How long it took to load partitions of {self.topic}.",
            kafka=f"{self.bean} partition-load-time-avg",
        )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.partitions, self.load_times

    def read(self, runtime: CoordinatorRuntime[Any]) -> list[Family]:
        found = Counter(_STATES.get(type(state)) for state in runtime.states())
        return [
            Family(self.partitions, [((state,), found[state]) for state in _STATES.values()]),
            Family.single(self.load_times, runtime.load_times),
        ]
