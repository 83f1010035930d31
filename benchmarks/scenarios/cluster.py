"""Three nodes that are one cluster, with three replicas of everything; and one machine's cores shared by two nodes.

All nodes run on the broker's core, and the load on the other, as with a single broker: the CPU for a unit of work is
that of all nodes together. Only `two-cores` gives both cores to all processes.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import machine
from benchmarks.bench import LEAD_S, Bench, Figures, Round, latencies, scenario, work
from benchmarks.brokers.clusters import Nodes, RunningCluster, brokers_known_to, leaders_of
from benchmarks.brokers.single import START_TIMEOUT_S, Lab, NotStarted, RunningBroker, Seat, Spec
from benchmarks.load.answers import check_produce
from benchmarks.load.connection import LOOPBACK, Connection
from benchmarks.load.replay import Played, Replayer, connect
from benchmarks.load.requests import numbered, produce, value_batch
from benchmarks.load.steady_writes import Partition, SteadyWrites, partitions_of
from benchmarks.machine import Meter, pinned
from benchmarks.scenarios.lifecycle import idle
from benchmarks.scenarios.raw import BATCH_RECORDS, PARTITIONS, RECORD_BYTES, TAPE
from devtools.ports import free_port

RESTART_PARTITIONS, RESTART_TOPICS = 1000, 10
MANY_PARTITIONS, PER_TOPIC, TOPICS_IN_REQUEST = 10_000, 100, 10
WRITES_PER_S = 300
SAMPLE = 30  # of a dead node's partitions, where all are too many to write to without disturbing the broker
SESSION_S = 6.0
IN_PROCESS_TIMES = 5
FAILOVER_TIMEOUT_S = 60.0
FIRST_WRITES_TIMEOUT_S = 60.0
AFTERWARDS_S = 0.5

_LOOK_AGAIN_S = 0.01


def loads(leaders: Mapping[Partition, int], batch: bytes) -> dict[int, tuple[list[bytes], int]]:
    """Returns requests with the same batch to the partitions that each node leads, and their number, by node."""
    found: dict[int, tuple[list[bytes], int]] = {}
    for node_id in sorted(set(leaders.values())):
        led: dict[str, list[int]] = {}
        for (topic, index), leader in leaders.items():
            if leader == node_id:
                led.setdefault(topic, []).append(index)
        ((topic, indexes),) = led.items()
        found[node_id] = numbered([produce(topic, indexes, batch)] * TAPE), len(indexes)
    return found


class _Load:
    """A batch to every partition that a node leads, in turn, to all nodes at the same time."""

    def __init__(
        self,
        ports: Mapping[int, int],
        leaders: Mapping[Partition, int],
        batch: bytes,
        *,
        connections: int,
        depth: int,
    ) -> None:
        """`connections` to each node."""
        self._stack = ExitStack()
        self.partitions = 0
        ((topic, _), *_) = leaders
        replayer = None
        for node_id, (requests, count) in loads(leaders, batch).items():
            sockets: list[socket.socket] = [
                self._stack.enter_context(sock) for sock in connect(ports[node_id], connections)
            ]
            check = check_produce(topic, count)
            if replayer is None:
                replayer = Replayer(sockets, requests, check, depth)
            else:
                replayer.add(sockets, requests, check)
        assert replayer is not None
        self.replayer = replayer
        self._stack.callback(replayer.close)

    def __enter__(self) -> Replayer:
        return self.replayer

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _ports(cluster: RunningCluster) -> dict[int, int]:
    return {node_id: seat.port for node_id, seat in cluster.seats.items()}


def _warm(bench: Bench, batch: bytes, *, connections: int, depth: int, share: float) -> None:
    """Each node works for `share` of a broker's warm-up."""
    cluster, options = bench.cluster, bench.options
    with _Load(_ports(cluster), cluster.leaders(["t"]), batch, connections=connections, depth=depth) as replayer:
        cpu_s = options.warm_cpu_s * len(cluster.nodes) * share
        replayer.warm(bench.meter, cpu_s=cpu_s, most_s=options.warm_s * len(cluster.nodes) * share)


def _play(bench: Bench, batch: bytes, *, connections: int, depth: int) -> Played:
    cluster, run_s = bench.cluster, bench.options.run_s
    with _Load(_ports(cluster), cluster.leaders(["t"]), batch, connections=connections, depth=depth) as replayer:
        return replayer.measure(bench.meter, lead_s=min(LEAD_S, run_s), run_s=run_s)


@scenario(
    "cluster-produce",
    f"3 nodes, 3 replicas: replayed Produce of {BATCH_RECORDS} records of 1 KiB to {PARTITIONS} partitions, acks=all",
    nodes=Nodes(),
)
def cluster_produce(bench: Bench) -> Round:
    bench.create({"t": PARTITIONS})
    batch = value_batch(BATCH_RECORDS, RECORD_BYTES)
    _warm(bench, value_batch(10, 100), connections=2, depth=2, share=0.5)
    _warm(bench, batch, connections=2, depth=2, share=0.5)
    bench.drop_cached()

    def measure() -> Figures:
        played = _play(bench, batch, connections=2, depth=2)
        bench.drop_cached()
        return work(played.usage, requests=played.requests, size_bytes=played.bytes_out) | latencies(
            played.latencies_ns
        )

    return measure


def _small(bench: Bench, *, partitions: int, connections: int, depth: int) -> Round:
    bench.create({"t": partitions})
    batch = value_batch(1, 100)
    _warm(bench, batch, connections=connections, depth=depth, share=1.0)

    def measure() -> Figures:
        played = _play(bench, batch, connections=connections, depth=depth)
        return work(played.usage, requests=played.requests) | latencies(played.latencies_ns)

    return measure


@scenario(
    "cluster-small",
    "3 nodes, 3 replicas: replayed Produce of one record of 100 B, acks=all; 3 connections to each node, 8 in flight",
    nodes=Nodes(),
)
def cluster_small(bench: Bench) -> Round:
    return _small(bench, partitions=3, connections=3, depth=8)


@scenario(
    "cluster-rtt",
    "the same one at a time, to one partition: a round trip that waits for both followers",
    nodes=Nodes(),
)
def cluster_rtt(bench: Bench) -> Round:
    return _small(bench, partitions=1, connections=1, depth=1)


def _failover(bench: Bench, *, session_s: float = 0.0) -> Round:
    """Round N kills the leader of partition N; afterwards all is as before."""
    cluster, topics = bench.cluster, ["t"]
    count = len(cluster.seats)
    bench.create({"t": count})
    rounds = iter(range(1 << 30))

    def measure() -> Figures:
        leaders = cluster.leaders(topics)
        dead = leaders["t", next(rounds) % count]
        led = {partition: leader for partition, leader in leaders.items() if leader == dead}
        figures = _kill(bench, dead, led)
        cluster.launch(dead)
        cluster.wait_until_whole(topics)
        cluster.prefer_leaders(topics)
        if session_s:
            figures["beyond_session_s"] = figures["failover_s"] - session_s
        return figures

    return measure


def _kill(bench: Bench, dead: int, written: Mapping[Partition, int]) -> Figures:
    """SIGKILL to a node, with writes to some of the partitions that it leads."""
    cluster = bench.cluster
    with SteadyWrites(_ports(cluster), written, per_s=500) as writes:
        time.sleep(AFTERWARDS_S)
        cluster_cpu = Meter([node.pid for it, node in cluster.running.items() if it != dead], bench.lab.broker_cores)
        start, killed_s = cluster_cpu.read(), time.monotonic()
        cluster.nodes[dead].kill()
        found: dict[Partition, float] = {}
        while len(found) < len(written) and time.monotonic() < killed_s + FAILOVER_TIMEOUT_S:
            time.sleep(_LOOK_AGAIN_S)
            found = writes.first_after(killed_s, not_by=dead)
        usage = cluster_cpu.since(start)
    if len(found) < len(written):
        raise TimeoutError(f"{len(written) - len(found)} of {len(written)} partitions got no other leader")
    return {
        "failover_s": min(found.values()) - killed_s,
        "failover_all_s": max(found.values()) - killed_s,
        "failover_cpu_s": usage.cpu_s,
    }


@scenario(
    "cluster-failover",
    "3 nodes, 3 replicas: SIGKILL of a leader to its successor's first acknowledgement; each round kills another node",
    nodes=Nodes(),
)
def cluster_failover(bench: Bench) -> Round:
    return _failover(bench)


@scenario(
    "cluster-failover-session",
    f"the same with a session time-out of {SESSION_S:g} s in both systems; kwire's nodes are in Apache ZooKeeper",
    nodes=Nodes(
        kafka={"broker.session.timeout.ms": f"{SESSION_S * 1000:.0f}"},
        kwire={"zookeeper.session.timeout.ms": f"{SESSION_S * 1000:.0f}"},
        in_zookeeper=True,
    ),
    needs_java=True,
)
def cluster_failover_session(bench: Bench) -> Round:
    return _failover(bench, session_s=SESSION_S)


@scenario(
    "cluster-restart",
    f"{RESTART_PARTITIONS:,} partitions, 3 replicas, {WRITES_PER_S:,} writes/s over all: a node is stopped and started",
    nodes=Nodes(),
)
def cluster_restart(bench: Bench) -> Round:
    cluster = bench.cluster
    each = bench.options.scaled(RESTART_PARTITIONS // RESTART_TOPICS)
    topics = [f"t{number}" for number in range(RESTART_TOPICS)]
    bench.create(dict.fromkeys(topics, each))
    bench.create({"t": len(cluster.seats)})
    _warm(bench, value_batch(1, 100), connections=1, depth=4, share=0.5)
    _write_to_each(cluster, cluster.leaders(topics))
    rounds = iter(range(1 << 30))

    def measure() -> Figures:
        node_id = next(rounds) % len(cluster.seats) + 1
        node = cluster.nodes[node_id]
        with SteadyWrites(_ports(cluster), cluster.leaders(topics), per_s=WRITES_PER_S) as writes:
            time.sleep(2 * AFTERWARDS_S)
            quiet_ms = writes.longest_s() * 1000
            began_s = time.monotonic()
            node.stop()
            stopped_s = time.monotonic()
            cluster.launch(node_id)
            cluster.wait_until_whole(topics)
            whole_s = time.monotonic()
            time.sleep(AFTERWARDS_S)
            back_s = time.monotonic()
            cluster.prefer_leaders(topics)
            time.sleep(AFTERWARDS_S)
        return {
            "stop_s": node.stop_s,
            "node_back_s": whole_s - stopped_s,
            "quiet_wait_ms": quiet_ms,
            "stop_wait_ms": _longest_ms(writes, began_s, stopped_s + 0.2),
            "restart_wait_ms": _longest_ms(writes, began_s, back_s),
            "return_wait_ms": _longest_ms(writes, back_s, float("inf")),
        }

    return measure


def _write_to_each(cluster: RunningCluster, leaders: Mapping[Partition, int]) -> None:
    """Writes to every partition. Its first record creates its files, which is no part of a restart."""
    give_up_s = time.monotonic() + FIRST_WRITES_TIMEOUT_S
    with SteadyWrites(_ports(cluster), leaders, per_s=2 * WRITES_PER_S) as writes:
        while (written := len(writes.first_after(0.0, not_by=-1))) < len(leaders) and time.monotonic() < give_up_s:
            time.sleep(_LOOK_AGAIN_S)
    if written < len(leaders):
        raise TimeoutError(f"{len(leaders) - written} of {len(leaders)} partitions took no write")


def _longest_ms(writes: SteadyWrites, first_s: float, last_s: float) -> float:
    """Returns the longest wait of the writes that were under way in that time."""
    waits_s = (
        it.acknowledged_s - it.sent_s
        for it in writes.acknowledged
        if it.acknowledged_s >= first_s and it.sent_s <= last_s
    )
    return max(waits_s, default=0.0) * 1000


@scenario(
    "cluster-10k",
    f"{MANY_PARTITIONS:,} partitions in topics of {PER_TOPIC}, 3 replicas: created; idle; SIGKILL of a node, until "
    f"others take writes to {SAMPLE} of the partitions that it led",
    alone=True,
    nodes=Nodes(),
)
def cluster_10k(bench: Bench) -> Round:
    cluster = bench.cluster
    topics = [f"t{number}" for number in range(bench.options.scaled(MANY_PARTITIONS // PER_TOPIC))]
    began_s, start = time.monotonic(), bench.meter.read()
    for at in range(0, len(topics), TOPICS_IN_REQUEST):
        bench.create(dict.fromkeys(topics[at : at + TOPICS_IN_REQUEST], PER_TOPIC))
    bench.figures |= {"create_s": time.monotonic() - began_s, "create_cpu_s": bench.meter.since(start).cpu_s}

    def measure() -> Figures:
        figures = idle(bench, bench.options.idle_s, settle_s=bench.options.settle_s * 2)
        figures["nodes_peak_mib"] = machine.resident_mib(*bench.meter.pids, peak=True)
        leaders = cluster.leaders([topics[place * (len(topics) - 1) // 9] for place in range(10)])
        written = dict.fromkeys(partitions_of(leaders, 1, SAMPLE), 1)
        return figures | _kill(bench, 1, written)

    return measure


@scenario(
    "cluster-startup",
    "3 nodes: exec to a record that all acknowledge, and a stop; kwire.testing.Cluster(3), up and down in one process",
    alone=True,
    nodes=Nodes(),
)
def cluster_startup(bench: Bench) -> Round:
    def measure() -> Figures:
        figures = {"stop_s": bench.cluster.stop()}
        return figures | _in_process(bench.lab) if bench.spec.kind == "kwire" else figures

    return measure


_IN_PROCESS = f"""
import time
from kwire.testing import Cluster
for _ in range({IN_PROCESS_TIMES}):
    began = time.monotonic()
    with Cluster(3):
        pass
    print(time.monotonic() - began)
"""


def _in_process(lab: Lab) -> Figures:
    with pinned(lab.broker_cores):
        done = subprocess.run(
            [sys.executable, "-c", _IN_PROCESS], capture_output=True, text=True, check=True, timeout=120.0
        )
    first_s, *more_s = map(float, done.stdout.split())
    return {"in_process_first_s": first_s, "in_process_s": statistics.median(more_s)}


@scenario(
    "two-cores",
    "raw-small with load and broker on both cores, 16 connections: one broker and, of kwire, `serve --nodes 2`",
)
def two_cores(bench: Bench) -> Round:
    bench.broker.stop()
    both = Lab(bench.lab.broker_cores | frozenset(machine.own_cores()), bench.lab.data_root)
    bench.keep.callback(both.close)
    one = bench.keep.enter_context(both.broker(bench.spec))
    measured = {"one": _both_cores(bench, both, one, {1: one.port})}
    if bench.spec.kind == "kwire":
        two, ports = bench.keep.enter_context(_two_nodes(both, bench.spec))
        measured["two"] = _both_cores(bench, both, two, ports)
    rounds = iter(range(1 << 30))

    def measure() -> Figures:
        names = list(measured)[:: -1 if next(rounds) % 2 else 1]
        found = {name: measured[name]() for name in names}
        if "two" not in found:
            return found["one"]
        one, two = found["one"], found["two"]
        return two | {
            "one_node_requests_per_s": one["requests_per_s"],
            "one_node_cpu_s_per_mrequest": one["cpu_s_per_mrequest"],
            "of_one_node": two["requests_per_s"] / one["requests_per_s"],
        }

    return measure


def _both_cores(bench: Bench, lab: Lab, broker: RunningBroker, ports: Mapping[int, int]) -> Callable[[], Figures]:
    """Warms up; then a round."""
    with Connection(broker.port) as connection:
        connection.create({"t": 2})
    leaders = leaders_of(broker.port, ["t"])
    batch, options = value_batch(1, 100), bench.options

    def load() -> _Load:
        return _Load(ports, leaders, batch, connections=16 // len(ports), depth=8)

    with pinned(lab.broker_cores), load() as replayer:
        replayer.warm(broker.meter, cpu_s=options.warm_cpu_s, most_s=options.warm_s)

    def measure() -> Figures:
        with pinned(lab.broker_cores), load() as replayer:
            client_s = time.process_time()
            played = replayer.measure(broker.meter, lead_s=min(LEAD_S, options.run_s), run_s=options.run_s)
            client_s = time.process_time() - client_s
        figures = work(played.usage, requests=played.requests) | latencies(played.latencies_ns)
        return figures | {"client_core": client_s / (played.usage.seconds + LEAD_S)}

    return measure


@contextmanager
def _two_nodes(lab: Lab, spec: Spec) -> Iterator[tuple[RunningBroker, dict[int, int]]]:
    """`kwire serve --nodes 2`; its process, and the ports by node id."""
    port = free_port()
    settings = " ".join(f"--set {name}={value}" for name, value in spec.settings.items())
    command = f"{sys.executable} -m kwire serve --nodes 2 --listen {LOOPBACK}:{{port}} --data-dir {{data}} {settings}"
    with tempfile.TemporaryDirectory(prefix="kwire-bench-", dir=lab.data_root) as folder:
        broker = lab.launch(Spec("nodes", command), Path(folder), Seat(port))
        try:
            while not all(brokers_known_to(it) == {1, 2} for it in (port, port + 1)):
                if not broker.running or time.monotonic() > broker.launched_s + START_TIMEOUT_S:
                    raise NotStarted(f"serve --nodes 2 did not start:\n{broker.last_words()}")
                time.sleep(_LOOK_AGAIN_S)
            yield broker, {1: port, 2: port + 1}
        finally:
            broker.stop()
