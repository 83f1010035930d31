"""Every figure that a round can have: its name, its unit, and which way is better.

A figure may be of one step of a series; then its name ends with `@` and the step (`create_s@1000`).
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Metric:
    label: str
    unit: str
    better: str = "lower"  # or "higher", or "" for one that only explains others
    is_share: bool = False  # kept as a part of 1, shown in %


def _share(label: str, unit: str, better: str = "") -> Metric:
    return Metric(label, unit, better, is_share=True)


METRICS = {
    "records_per_s": Metric("records", "/s", "higher"),
    "connector_records_per_s": Metric("records by Spark's connector", "/s", ""),
    "records_of_connector": Metric("records/s, of the connector's", "", "higher"),
    "requests_per_s": Metric("requests", "/s", "higher"),
    "transactions_per_s": Metric("transactions", "/s", "higher"),
    "mib_per_s": Metric("throughput", "MiB/s", "higher"),
    "cpu_s_per_gib": Metric("broker CPU per GiB", "s"),
    "plain_mib_per_s": Metric("throughput without TLS", "MiB/s", ""),
    "plain_cpu_s_per_gib": Metric("broker CPU per GiB without TLS", "s", ""),
    "cpu_s_per_mrecord": Metric("broker CPU per million records", "s"),
    "plain_cpu_s_per_mrecord": Metric("the same into a plain topic", "s"),
    "cpu_s_per_mrequest": Metric("broker CPU per million requests", "s"),
    "cpu_s_per_mtransaction": Metric("broker CPU per million transactions", "s"),
    "handshakes_per_s": Metric("TLS handshakes", "/s", "higher"),
    "cpu_ms_per_handshake": Metric("broker CPU per TLS handshake", "ms"),
    "logins_per_s": Metric("logins", "/s", "higher"),
    "cpu_ms_per_login": Metric("broker CPU per login", "ms"),
    "plain_cpu_ms_per_visit": Metric("broker CPU per plain connection", "ms", ""),
    "list_cpu_s_per_mrequest": Metric("broker CPU per million ListOffsets", "s"),
    "fetch_cpu_s_per_mrequest": Metric("broker CPU per million Fetches", "s"),
    "redelivered_after_ms": Metric("redelivered after a lock's end, median", "ms"),
    "last_redelivered_after_ms": Metric("the latest redelivery", "ms"),
    "cpu_ms_per_member": Metric("broker CPU per joining member", "ms"),
    "rows_per_s": Metric("rows into the table", "/s", "higher"),
    "by_hand_rows_per_s": Metric("rows by hand", "/s", ""),
    "rows_of_by_hand": Metric("rows/s, of those by hand", "", "higher"),
    "job_cpu_s_per_mrow": Metric("job's CPU per million rows", "s"),
    "by_hand_cpu_s_per_mrow": Metric("the same by hand", "s", ""),
    "verified_per_cpu_s": Metric("verified records per CPU second", "", "higher"),
    "verify_s": Metric("verify, whole command", "s"),
    "index_rows_per_s": Metric("rows into the index", "/s", "higher"),
    "maintain_s": Metric("maintain, whole command", "s"),
    "user_id_ms": Metric("found by user_id, median", "ms"),
    "log_id_ms": Metric("found by log_id, median", "ms"),
    "key_ms": Metric("found by key, median", "ms"),
    "offset_ms": Metric("found by offset, median", "ms"),
    "either_ms": Metric("found by user_id OR log_id, median", "ms"),
    "query_s": Metric("kwire query, whole command", "s"),
    "trigger_ms": Metric("trigger, median", "ms"),
    "connector_trigger_ms": Metric("trigger by Spark's connector, median", "ms", ""),
    "trigger_of_connector": Metric("trigger, of the connector's", ""),
    "trigger_p95_ms": Metric("trigger, p95", "ms"),
    "cpu_ms_per_trigger": Metric("broker CPU per trigger", "ms"),
    "p50_ms": Metric("latency p50", "ms"),
    "p95_ms": Metric("latency p95", "ms"),
    "p99_ms": Metric("latency p99", "ms"),
    "alone_p99_ms": Metric("latency p99 without that", "ms", ""),
    "p99_beside": Metric("latency p99, of that without", ""),
    "worst_ms": Metric("latency, worst", "ms"),
    "alone_worst_ms": Metric("latency, worst, without that", "ms", ""),
    "load_s": Metric("restart until all groups are loaded", "s"),
    "p999_ms": Metric("latency p99.9", "ms"),
    "mean_ms": Metric("latency mean", "ms"),
    "metadata_kib": Metric("metadata log and snapshots", "KiB"),
    "create_wait_ms": Metric("longest wait beside a topic of 1,000 partitions, created", "ms"),
    "grow_wait_ms": Metric("beside that given another 1,000", "ms"),
    "delete_wait_ms": Metric("beside that deleted", "ms"),
    "create_topics_wait_ms": Metric("beside 200 topics, created", "ms"),
    "configure_topics_wait_ms": Metric("beside those configured", "ms"),
    "delete_topics_wait_ms": Metric("beside those deleted", "ms"),
    "connect_s": Metric("time to connect all", "s"),
    "create_s": Metric("time to create partitions", "s"),
    "create_cpu_s": Metric("CPU of that creation", "s"),
    "store_s": Metric("time to write what is found", "s", ""),
    "join_s": Metric("time until all members are assigned", "s"),
    "settle_s": Metric("time until all others are assigned", "s"),
    "settle_cpu_ms": Metric("broker CPU until then", "ms"),
    "heartbeats": Metric("heartbeats until then", "", ""),
    "idle_core": _share("idle CPU", "% of a core", "lower"),
    "idle_cpu_s": Metric("CPU while idle", "s"),
    "wake_ups_per_s": Metric("idle wake-ups", "/s"),
    "kib_per_connection": Metric("memory per connection", "KiB"),
    "kib_per_member": Metric("memory per member", "KiB"),
    "failover_s": Metric("SIGKILL to the successor's first acknowledgement", "s"),
    "beyond_session_s": Metric("that, beyond the session time-out", "s"),
    "failover_all_s": Metric("SIGKILL until all the partitions take writes", "s"),
    "failover_cpu_s": Metric("CPU of the other nodes until then", "s"),
    "restart_wait_ms": Metric("longest wait of a write beside a restart", "ms"),
    "stop_wait_ms": Metric("of which beside the stop", "ms"),
    "return_wait_ms": Metric("longest wait beside the return of its leaders", "ms"),
    "quiet_wait_ms": Metric("longest wait before all that", "ms", ""),
    "node_back_s": Metric("start until all its replicas are in sync", "s"),
    "nodes_startup_s": Metric("exec to a record that all nodes acknowledge", "s"),
    "nodes_startup_cpu_s": Metric("CPU of that start of all nodes", "s"),
    "in_process_s": Metric("Cluster(3) in one process, up and down", "s"),
    "in_process_first_s": Metric("the same for the first time", "s"),
    "of_one_node": Metric("requests/s, of those of one node", "", "higher"),
    "one_node_requests_per_s": Metric("requests to one node", "/s", ""),
    "one_node_cpu_s_per_mrequest": Metric("CPU of one node per million requests", "s", ""),
    "restart_s": Metric("restart to first acknowledged record", "s"),
    "restart_cpu_s": Metric("CPU of that restart", "s"),
    "startup_s": Metric("exec to first acknowledged record", "s"),
    "startup_cpu_s": Metric("CPU of that start", "s"),
    "stop_s": Metric("clean stop", "s"),
    "peak_mib": Metric("memory, peak", "MiB"),
    "nodes_peak_mib": Metric("memory of all nodes, peak", "MiB"),
    "resident_mib": Metric("memory, after the round", "MiB"),
    "records_per_request": Metric("records in a request", "", ""),
    "refused_per_transaction": Metric("CONCURRENT_TRANSACTIONS in a transaction", "", ""),
    "generations": Metric("rebalances until then", "", ""),
    "broker_core": _share("broker's share of its core", "%"),
    "client_core": _share("load's share of a core", "%"),
    "others_core": _share("other work on the broker's core", "%"),
}
WORK = (
    "cpu_s_per_gib",
    "cpu_s_per_mrecord",
    "cpu_s_per_mrequest",
    "cpu_s_per_mtransaction",
    "cpu_ms_per_handshake",
    "cpu_ms_per_login",
)
"""CPU for a unit of work; the first of them that a scenario has is what its cost is judged by."""


def of(name: str) -> Metric:
    return METRICS[name.partition("@")[0]]


def label(name: str) -> str:
    """`broker CPU per GiB, s`, and the step if it is of one."""
    metric, step = of(name), name.partition("@")[2]
    return ", ".join(filter(None, (metric.label, metric.unit, step and f"at {int(step):,}")))


def in_order(names: set[str]) -> list[str]:
    """Sorts names in the order above; the steps of a figure as they grow."""
    places = {name: place for place, name in enumerate(METRICS)}

    def key(name: str) -> tuple[int, int]:
        metric, _, step = name.partition("@")
        return places[metric], int(step or 0)

    return sorted(names, key=key)
