"""Each scenario once, for a moment, against kwire alone: do they work, are all answers right, are the figures there?

Nothing here looks at a time. What is wrong with an answer, the load itself raises.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from benchmarks import limits, machine, scenarios  # noqa: F401 - the last registers them all
from benchmarks.bench import SCENARIOS
from benchmarks.brokers.single import Lab, Spec
from benchmarks.options import SMOKE
from benchmarks.results import metrics
from benchmarks.results.report import render
from benchmarks.results.stored import Results
from benchmarks.runner import Runner

LATENCY = {"p50_ms", "p99_ms"}
SENT = {"requests_per_s", "cpu_s_per_mrequest"}
BYTES = {"mib_per_s", "cpu_s_per_gib"}
PLAIN = {"plain_mib_per_s", "plain_cpu_s_per_gib"}
IDLE = {"idle_core", "wake_ups_per_s"}
PRODUCED = {"records_per_s", "cpu_s_per_mrecord", "records_per_request", "p99_ms"}
COMMITTED = {"transactions_per_s", "cpu_s_per_mtransaction", "refused_per_transaction"}
JOBS = {"rows_per_s", "by_hand_rows_per_s", "rows_of_by_hand", "job_cpu_s_per_mrow", "by_hand_cpu_s_per_mrow"}
FOUND = {"user_id_ms", "log_id_ms", "key_ms", "offset_ms", "either_ms"}
MAY_BE_NEGATIVE = {"kib_per_connection", "kib_per_member@1000", "kib_per_member@5000", "beyond_session_s"}
FAILOVER = {"failover_s", "failover_all_s", "failover_cpu_s"}

FIGURES = {
    "raw-produce": SENT | BYTES | LATENCY,
    "raw-fetch": SENT | BYTES | LATENCY,
    "raw-small": SENT | LATENCY,
    "raw-rtt": SENT | LATENCY,
    "raw-list-offsets": SENT | LATENCY,
    "connections": SENT | LATENCY | IDLE | {"connect_s", "kib_per_connection"},
    "many-partitions": SENT | LATENCY | {"create_s"},
    "unbatched": SENT | PRODUCED,
    "produce-1k": BYTES | PRODUCED,
    "produce-100b": BYTES | PRODUCED,
    "produce-1k-lz4": BYTES | PRODUCED,
    "produce-1k-idempotent": BYTES | PRODUCED,
    "paced-20k": PRODUCED | LATENCY,
    "consume": BYTES | {"records_per_s"},
    "consume-cold": BYTES | {"records_per_s"},
    "e2e": LATENCY,
    "e2e-raw": LATENCY | {"cpu_s_per_mrecord"},
    "fetch-fanout": LATENCY | {"cpu_s_per_mrecord"},
    "group-join": {"join_s", "cpu_ms_per_member"},
    "consumer-heartbeat": SENT | LATENCY | {"join_s"},
    "consumer-leave": {"join_s", "settle_s", "settle_cpu_ms", "heartbeats"},
    "share-consume": {"records_per_s", "cpu_s_per_mrecord"},
    "share-redelivery": {"redelivered_after_ms", "last_redelivered_after_ms"},
    "share-state": SENT | LATENCY,
    "transactions-1": COMMITTED | LATENCY,
    "transactions-16": COMMITTED | LATENCY,
    "clean-100b": BYTES,
    "clean-1k": BYTES,
    "beside-cleaning": LATENCY | {"alone_p99_ms", "p99_beside"},
    "keyed-100b": {"records_per_s", "cpu_s_per_mrecord", "plain_cpu_s_per_mrecord"},
    "load-offsets": LATENCY | {"restart_s", "load_s", "worst_ms", "alone_p99_ms", "alone_worst_ms"},
    "startup": {"startup_s", "startup_cpu_s", "stop_s", "peak_mib"},
    "beside-metadata": {"create_wait_ms", "grow_wait_ms", "delete_wait_ms", "create_topics_wait_ms"},
    "passing-topics": {"metadata_kib", "restart_s", "restart_cpu_s", "create_s"},
    "restart": {"restart_s", "restart_cpu_s", "stop_s"},
    "idle": IDLE | {"create_s"},
    "start-clean": {"restart_s", "restart_cpu_s", "stop_s", "store_s"},
    "start-killed": {"restart_s", "restart_cpu_s", "store_s"},
    "idle-10k": IDLE | {"create_s", "idle_cpu_s"},
    "flush-each": SENT | LATENCY,
    "cluster-produce": SENT | BYTES | LATENCY,
    "cluster-small": SENT | LATENCY,
    "cluster-rtt": SENT | LATENCY,
    "cluster-failover": FAILOVER,
    "cluster-failover-session": FAILOVER | {"beyond_session_s"},
    "cluster-restart": {"stop_s", "node_back_s", "restart_wait_ms", "return_wait_ms"},
    "cluster-10k": IDLE | FAILOVER | {"create_s", "create_cpu_s"},
    "cluster-startup": {"nodes_startup_s", "nodes_startup_cpu_s", "stop_s", "in_process_s", "in_process_first_s"},
    "two-cores": SENT | LATENCY | {"of_one_node", "one_node_requests_per_s"},
    "tls-produce": SENT | BYTES | LATENCY | PLAIN,
    "tls-fetch": SENT | BYTES | LATENCY | PLAIN,
    "tls-handshakes": LATENCY | {"handshakes_per_s", "cpu_ms_per_handshake", "plain_cpu_ms_per_visit"},
    "scram-logins": LATENCY | {"logins_per_s", "cpu_ms_per_login", "plain_cpu_ms_per_visit"},
    "spark-trigger": {"trigger_ms", "cpu_ms_per_trigger"},
    "kwire-source-trigger": {"trigger_ms", "connector_trigger_ms", "trigger_of_connector", "cpu_ms_per_trigger"},
    "kwire-source-batch": {"records_per_s", "connector_records_per_s", "records_of_connector", "cpu_s_per_mrecord"},
    "pipeline-table": JOBS | {"verified_per_cpu_s", "verify_s", "cpu_s_per_mrecord"},
    "pipeline-query": FOUND | {"query_s", "index_rows_per_s", "maintain_s"},
    "growth-connections": {"cpu_s_per_mrequest@100", "idle_core@10", "resident_mib@100"},
    "growth-partitions": {"cpu_s_per_mrequest@100", "create_s@100"},
    "growth-segments": {"list_cpu_s_per_mrequest@10", "fetch_cpu_s_per_mrequest@10"},
    "growth-members": {"join_s@1", "cpu_ms_per_member@10"},
    "growth-consumer-members": {"kib_per_member@1000", "kib_per_member@5000", "join_s@5000", "cpu_ms_per_member@1000"},
    "growth-record-size": {"cpu_s_per_gib@1048000", "cpu_s_per_mrequest@100"},
}


def test_every_scenario_is_here() -> None:
    assert list(FIGURES.keys() ^ SCENARIOS.keys()) == []


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # pyspark leaves them to the garbage collector
@pytest.mark.parametrize("name", FIGURES)
def test_a_scenario_gets_right_answers_and_has_its_figures(name: str) -> None:
    results = Results.new({"kwire": "kwire"}, SMOKE)
    with ExitStack() as stack:
        lab = Lab(frozenset(machine.own_cores()))
        stack.callback(lab.close)
        reported: list[str] = []
        runner = Runner(
            lab, [Spec.parse("kwire")], SMOKE, results, with_limits=False, file=None, report=reported.append
        )
        runner.play(SCENARIOS[name], range(1))
    (entry,) = results.entries
    assert entry.error is None
    assert set(entry.figures) >= FIGURES[name]
    assert {"startup_s", "nodes_startup_s"} & set(entry.figures)
    assert all(value >= 0 for name, value in entry.figures.items() if name not in MAY_BE_NEGATIVE)
    report = render(results)
    assert all(metrics.label(figure) in report for figure in entry.figures)


@pytest.mark.soak
@pytest.mark.parametrize("limit", limits.LIMITS)
def test_a_bare_limit_answers_the_load(limit: str) -> None:
    figures = limits.measure(limit, Lab(frozenset(machine.own_cores())), run_s=SMOKE.run_s)
    assert figures["requests_per_s"] > 0
