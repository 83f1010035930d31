"""What a metric is, and its values at one moment: plain values, which any thread may have."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

import attrs

from kwire.coordinators.durations import Durations


class MetricType(Enum):
    """Prometheus' types, of those that are used."""

    COUNTER = auto()
    """Only grows, from 0 at the start of the broker. Kafka's rates are the growth of one."""
    GAUGE = auto()
    SUMMARY = auto()
    """How many, and the sum of all. Kafka's averages are the growth of the one through that of the other."""


@attrs.frozen
class Metric:
    """`kafka` is Kafka's name: the MBean and, where it has several, the attribute. Empty if Kafka has none.

    The name of a counter ends with `_total`, that of a time with `_seconds`.
    """

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    kafka: str = ""


@attrs.frozen
class Times:
    """The value of a summary."""

    count: int
    sum_s: float

    @classmethod
    def of(cls, durations: Durations) -> Times:
        return cls(durations.count, durations.total_ms / 1000)


Sample: TypeAlias = tuple[tuple[str, ...], float | Times]
"""The values of the labels, and the value."""


class Family(NamedTuple):
    """A metric and its values."""

    metric: Metric
    samples: Sequence[Sample]

    @classmethod
    def single(cls, metric: Metric, value: float | Durations) -> Family:
        """Of a metric without labels."""
        return cls(metric, [((), Times.of(value) if isinstance(value, Durations) else value)])
