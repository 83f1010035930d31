"""A metric, and its values at one moment: plain values, which any thread may use."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

import attrs

from kwire.coordinators.durations import Durations


class MetricType(Enum):
    """The types of Prometheus that kwire uses."""

    COUNTER = auto()
    """A number that only grows, from 0 at the start of the broker. Kafka's rates are its growth."""
    GAUGE = auto()
    SUMMARY = auto()
    """The count and the sum of values. Kafka's averages are the growth of the sum divided by that of the count."""


@attrs.frozen
class Metric:
    """A metric. `kafka` is Kafka's name: the MBean and, if it has several, the attribute. Empty if Kafka has none.

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
        """Returns the family of a metric without labels."""
        return cls(metric, [((), Times.of(value) if isinstance(value, Durations) else value)])
