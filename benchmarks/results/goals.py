"""The broker's goals, as bounds on figures.

A bound is on the median of the ratios to Apache Kafka in the same run or, for a few, on the median of the figure.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Goal:
    scenario: str  # or "*" for every one whose size is fixed: all but those of growth
    metric: str
    bound: float
    at_least: bool = False
    is_ratio: bool = True

    def is_reached_by(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.bound:g}{'x' if self.is_ratio else ''}"


def _cost(scenario: str, metric: str, bound: float) -> Goal:
    return Goal(scenario, metric, bound)


def _rate(scenario: str, metric: str, bound: float) -> Goal:
    return Goal(scenario, metric, bound, at_least=True)


def _latency(bound: float, *scenarios: str, of: tuple[str, ...] = ("p50_ms", "p99_ms")) -> list[Goal]:
    return [Goal(scenario, metric, bound) for scenario in scenarios for metric in of]


def _absolute(scenario: str, metric: str, bound: float) -> Goal:
    return Goal(scenario, metric, bound, is_ratio=False)


def _least(scenario: str, metric: str, bound: float) -> Goal:
    return Goal(scenario, metric, bound, at_least=True, is_ratio=False)


GOALS = [
    _cost("raw-produce", "cpu_s_per_gib", 0.6),
    _rate("raw-produce", "mib_per_s", 1.4),
    _cost("raw-fetch", "cpu_s_per_gib", 1.05),
    _cost("raw-rtt", "cpu_s_per_mrequest", 0.8),
    _cost("raw-small", "cpu_s_per_mrequest", 1.0),
    _cost("connections", "cpu_s_per_mrequest", 1.0),
    *_latency(1.0, "raw-rtt", "raw-small", "connections"),
    _rate("unbatched", "requests_per_s", 1.0),
    _cost("unbatched", "cpu_s_per_mrequest", 0.8),
    _cost("raw-list-offsets", "cpu_s_per_mrequest", 0.6),
    *(_cost(name, "cpu_s_per_gib", 0.4) for name in ("produce-1k", "produce-1k-lz4", "produce-1k-idempotent")),
    *(_rate(name, "mib_per_s", 1.0) for name in ("produce-1k", "produce-1k-lz4", "produce-1k-idempotent")),
    _cost("produce-100b", "cpu_s_per_mrecord", 0.6),
    _rate("produce-100b", "records_per_s", 1.0),
    _cost("consume", "cpu_s_per_gib", 0.9),
    _rate("consume", "mib_per_s", 1.0),
    _cost("paced-20k", "cpu_s_per_mrecord", 0.8),
    *_latency(0.8, "paced-20k"),
    *_latency(1.0, "e2e", "e2e-raw"),
    _cost("fetch-fanout", "cpu_s_per_mrecord", 0.8),
    *_latency(1.0, "fetch-fanout", of=("p99_ms",)),
    _cost("many-partitions", "cpu_s_per_mrequest", 1.0),
    _cost("many-partitions", "create_s", 0.1),
    _cost("connections", "idle_core", 0.05),
    _cost("idle", "idle_core", 0.05),
    _absolute("idle", "wake_ups_per_s", 5.0),
    _cost("group-join", "join_s", 0.7),
    _cost("consumer-heartbeat", "cpu_s_per_mrequest", 0.8),
    _rate("share-consume", "records_per_s", 1.0),
    _cost("share-consume", "cpu_s_per_mrecord", 1.0),
    _absolute("share-redelivery", "redelivered_after_ms", 50.0),
    *(_cost(name, "cpu_s_per_gib", 1.0) for name in ("tls-produce", "tls-fetch")),
    *(_rate(name, "transactions_per_s", 1.0) for name in ("transactions-1", "transactions-16")),
    *(_cost(name, "cpu_s_per_mtransaction", 1.0) for name in ("transactions-1", "transactions-16")),
    _least("clean-100b", "mib_per_s", 50.0),
    _least("clean-1k", "mib_per_s", 300.0),
    _absolute("beside-cleaning", "p99_beside", 1.2),
    _absolute("keyed-100b", "cpu_s_per_mrecord", 0.7),
    _absolute("startup", "startup_s", 0.3),
    _cost("restart", "restart_s", 0.1),
    *(_cost(name, "restart_s", 0.1) for name in ("start-clean", "start-killed")),
    _cost("idle-10k", "idle_core", 0.05),
    _absolute("idle-10k", "wake_ups_per_s", 5.0),
    *_latency(1.0, "flush-each", of=("p99_ms",)),
    _cost("spark-trigger", "trigger_ms", 0.5),
    _absolute("kwire-source-trigger", "trigger_of_connector", 2.0),
    _least("kwire-source-batch", "records_of_connector", 0.5),
    _least("pipeline-table", "rows_of_by_hand", 1.0),
    _least("pipeline-table", "verified_per_cpu_s", 1e6),
    *(_absolute("pipeline-query", f"{what}_ms", 200.0) for what in ("user_id", "log_id", "key", "offset", "either")),
    _cost("cluster-produce", "cpu_s_per_gib", 0.7),
    _rate("cluster-produce", "mib_per_s", 1.0),
    _absolute("cluster-failover", "failover_s", 0.5),
    _absolute("cluster-failover-session", "beyond_session_s", 0.3),
    _absolute("cluster-restart", "restart_wait_ms", 200.0),
    _cost("cluster-10k", "idle_core", 0.05),
    _least("two-cores", "of_one_node", 1.7),
    _absolute("cluster-startup", "in_process_s", 0.3),
    _absolute("*", "peak_mib", 80.0),
    _cost("*", "peak_mib", 0.1),
]
