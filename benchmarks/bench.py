"""Scenarios, and the broker, options and helpers that each gets.

A scenario is a function that is given a `Bench`, a broker just started on an empty folder with all that is needed to
put it to work. The function prepares topics, data and warm-up, and returns another, which measures one round and
returns its figures (`results/metrics.py` lists them all). It stores figures of the preparation in `bench.figures`, and
puts on `bench.keep` what must be closed in the end.

Between the rounds of one broker the others have their turn.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import attrs

from benchmarks.brokers.clusters import Nodes, RunningCluster
from benchmarks.brokers.listeners import SSL
from benchmarks.brokers.single import Lab, RunningBroker, Spec
from benchmarks.load.answers import Check, check_produce
from benchmarks.load.connection import Connection
from benchmarks.load.replay import Played, Replayer, connect, percentiles_ms
from benchmarks.load.requests import numbered, produce, value_batch
from benchmarks.load.tls import connect_tls
from benchmarks.machine import Meter, Usage, drop_from_cache
from benchmarks.options import Options

LEAD_S = 0.5  # of a load before it is measured

Figures = dict[str, float]
Round = Callable[[], Figures]


@attrs.define(eq=False)
class Bench:
    lab: Lab
    spec: Spec
    broker: RunningBroker
    options: Options
    keep: ExitStack
    nodes: RunningCluster | None = None
    figures: Figures = attrs.field(factory=dict)

    @property
    def cluster(self) -> RunningCluster:
        """The cluster of a scenario with several nodes; `broker` is the first of them, as it was started first."""
        assert self.nodes is not None, "the scenario has one broker"
        return self.nodes

    @property
    def meter(self) -> Meter:
        """A meter of the broker, or of all nodes that run."""
        return self.broker.meter if self.nodes is None else self.nodes.meter

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def create(self, topics: Mapping[str, int], configs: Mapping[str, str] | None = None) -> None:
        """Topics with so many partitions each, and a replica of each on every node."""
        replicas = 1 if self.nodes is None else len(self.nodes.seats)
        with Connection(self.broker.port) as connection:
            connection.create(topics, configs, replicas=replicas)

    def drop_cached(self) -> None:
        """Off the clock, after much was written: the next to write shall not pay for what is still to be stored."""
        drop_from_cache(self.broker.data if self.nodes is None else self.nodes.root)

    def connect(self, count: int) -> list[socket.socket]:
        """Connections that stay until the broker goes."""
        return [self.keep.enter_context(sock) for sock in connect(self.broker.port, count)]

    def warm(self, requests: Sequence[bytes], check: Check, *, share: float = 1.0, tls: bool = False) -> None:
        """Has the broker work for its share of the warm-up."""
        options = self.options
        with ExitStack() as stack:
            sockets = [stack.enter_context(sock) for sock in self._connect(4, tls=tls)]
            replayer = Replayer(sockets, requests, check, depth=2)
            stack.callback(replayer.close)
            replayer.warm(self.meter, cpu_s=options.warm_cpu_s * share, most_s=options.warm_s * share)

    def warm_produce(self, topic: str, partitions: int, *, share: float = 1.0, tls: bool = False) -> None:
        """The way that records take, with little data: ten records of 100 bytes in a batch."""
        frame = produce(topic, range(partitions), value_batch(10, 100))
        self.warm(numbered([frame] * 64), check_produce(topic, partitions), share=share, tls=tls)

    def replay(
        self, requests: Sequence[bytes], check: Check, *, connections: int, depth: int, tls: bool = False
    ) -> Played:
        """Plays requests on connections of their own for one round."""
        with ExitStack() as stack:
            sockets = [stack.enter_context(sock) for sock in self._connect(connections, tls=tls)]
            return self.replay_on(sockets, requests, check, depth=depth)

    def _connect(self, count: int, *, tls: bool) -> Sequence[socket.socket]:
        if tls:
            return connect_tls(self.broker.port_of(SSL), count)
        return connect(self.broker.port, count)

    def replay_on(
        self, sockets: Sequence[socket.socket], requests: Sequence[bytes], check: Check, *, depth: int
    ) -> Played:
        replayer = Replayer(sockets, requests, check, depth)
        try:
            return replayer.measure(self.meter, lead_s=min(LEAD_S, self.options.run_s), run_s=self.options.run_s)
        finally:
            replayer.close()


@attrs.frozen
class Scenario:
    name: str
    about: str
    prepare: Callable[[Bench], Round]
    limit: str | None  # the bare limit whose share it can be given
    alone: bool  # each round has a broker just started, and no other is up
    needs_java: bool  # for its client
    nodes: Nodes | None  # the cluster that it is for; a single broker otherwise
    settings: Mapping[str, str]  # of both systems, where they are not the defaults; of a single broker only
    more_listeners: Sequence[str]  # beside the plain one (brokers/listeners.py); of a single broker only


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    name: str,
    about: str,
    *,
    limit: str | None = None,
    alone: bool = False,
    needs_java: bool = False,
    nodes: Nodes | None = None,
    settings: Mapping[str, str] | None = None,
    more_listeners: Sequence[str] = (),
) -> Callable[[Callable[[Bench], Round]], Callable[[Bench], Round]]:
    """Registers what it decorates."""

    def register(prepare: Callable[[Bench], Round]) -> Callable[[Bench], Round]:
        SCENARIOS[name] = Scenario(
            name, about, prepare, limit, alone, needs_java, nodes, settings or {}, more_listeners
        )
        return prepare

    return register


def work(
    usage: Usage, *, records: float = 0, requests: float = 0, transactions: float = 0, size_bytes: float = 0
) -> Figures:
    """Throughput, and the broker's CPU for a unit of work."""
    figures = {"broker_core": usage.cpu_s / usage.seconds, "others_core": usage.others_s / usage.seconds}
    for count, unit, rate, cost in (
        (records, 1e6, "records_per_s", "cpu_s_per_mrecord"),
        (requests, 1e6, "requests_per_s", "cpu_s_per_mrequest"),
        (transactions, 1e6, "transactions_per_s", "cpu_s_per_mtransaction"),
    ):
        if count:
            figures |= {rate: count / usage.seconds, cost: usage.cpu_s / count * unit}
    if size_bytes:
        figures |= {
            "mib_per_s": size_bytes / 2**20 / usage.seconds,
            "cpu_s_per_gib": usage.cpu_s / size_bytes * 2**30,
        }
    return figures


def latencies(latencies_ns: Sequence[int]) -> Figures:
    names = ("p50_ms", "p95_ms", "p99_ms")
    return dict(zip(names, percentiles_ms(latencies_ns, 0.5, 0.95, 0.99), strict=True))
