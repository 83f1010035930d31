"""One run of a cluster, which its seed decides. `simulate` raises BrokenPromise, or any other error of the run."""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import attrs
import trio
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.records import Record

from kwire.coordinators.runtime import java_hash
from kwire.names.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kwire.replicas.partition import Partition
from kwire.runtime import workers
from testkit.worlds.simulation import node as nodes_of
from testkit.worlds.simulation.calendar import Calendar, run_virtually
from testkit.worlds.simulation.clients import (
    Again,
    Client,
    Cluster,
    HastyProducer,
    Operator,
    Producer,
    Reader,
    TransactionalProducer,
)
from testkit.worlds.simulation.eligibility import MIN_INSYNC_REPLICAS, Eligibility, Loss, PartitionId
from testkit.worlds.simulation.faults import Faults
from testkit.worlds.simulation.groups import GROUP, KINDS, LETTERS, WEIGHTS, SharingGroup, SimGroup, Truth
from testkit.worlds.simulation.groups import SETTINGS as GROUP_SETTINGS
from testkit.worlds.simulation.history import BrokenPromise, History
from testkit.worlds.simulation.keeper import NAME as KEEPER
from testkit.worlds.simulation.keeper import Keeper
from testkit.worlds.simulation.ledger import Ledger
from testkit.worlds.simulation.network import Network
from testkit.worlds.simulation.node import Node, Process

TOPIC = "t"
PARTITIONS = 3
INTERNAL_PARTITIONS = 2
"""The number of partitions of each internal topic."""
PARTITIONS_OF_ALL: list[PartitionId] = [
    *((TOPIC, index) for index in range(PARTITIONS)),
    *((topic, index) for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE) for index in range(INTERNAL_PARTITIONS)),
]
CHECK_INTERVAL_S = 0.02
PROGRESS_WITHIN_S = 10.0
SHARE_WITH_A_LOSS = 0.25
"""The share of the runs that end with the death of a node; that takes a third of a run."""
SETTLED_WITHIN_S = 60.0
"""The maximum time for the cluster to settle after the faults: requests of 30 s may be in flight that are never
answered.
"""
GIVEN_AGAIN_AFTER_S = 20.0
FETCHED_AT_ONCE_BYTES = (10_485_760, 10_485_760, 500)
"""replica.fetch.response.max.bytes in a run: where it is small, a follower that is behind takes a while to catch up."""
KEEPER_SLOWNESS = (1.0, 1.0, 20.0)
"""The slowness of the keeper in a run: if it is large, decisions of nodes are long in flight, and conflict with others.
"""

SETTINGS = (
    f"min.insync.replicas={MIN_INSYNC_REPLICAS}",
    f"offsets.topic.num.partitions={INTERNAL_PARTITIONS}",
    "offsets.topic.replication.factor=3",
    f"transaction.state.log.num.partitions={INTERNAL_PARTITIONS}",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
    "replica.lag.time.max.ms=300",
    "replica.socket.timeout.ms=1000",
    "replica.fetch.wait.max.ms=100",
    "replica.fetch.backoff.ms=50",
    "replica.high.watermark.checkpoint.interval.ms=500",
    "log.flush.offset.checkpoint.interval.ms=700",
    "leader.imbalance.check.interval.seconds=1",
    "metadata.log.max.record.bytes.between.snapshots=1500",
    "log.message.timestamp.after.max.ms=9223372036854775807",
    *GROUP_SETTINGS,
)


@attrs.define
class Report:
    """The numbers of a run. `fingerprint` is the same for the same run."""

    seed: int
    kind: str = ""
    """The kind of the group."""
    fingerprint: int = 0
    events: int = 0
    virtual_s: float = 0.0
    acknowledged: int = 0
    transactions: int = 0
    commits: int = 0
    accepted: int = 0
    """Records that members of a share group accepted."""
    losses: int = 0
    """The number of losses of partitions; they are forgiven."""
    unclean_elections: int = 0
    faults: dict[str, int] = attrs.field(factory=dict)
    last: deque[str] = attrs.field(factory=lambda: deque(maxlen=60))

    def note(self, what: str) -> None:
        line = f"{trio.current_time():.6f} {what}"
        self.events += 1
        self.fingerprint = zlib.crc32(line.encode(), self.fingerprint)
        self.last.append(line)


@contextmanager
def _threads_replaced() -> Iterator[None]:
    before = workers.run
    workers.run = nodes_of.in_thread
    try:
        yield
    finally:
        workers.run = before


def simulate(
    seed: int, *, faults_s: float, node_count: int = 3, kind: str | None = None, report: Report | None = None
) -> Report:
    """Things go wrong for `faults_s`; then all is mended, and everything that was promised has to be there.

    `kind` is that of the group, one of KINDS; without it the seed decides."""
    report = report or Report(seed)
    simulation = Simulation(report, faults_s, node_count, kind)
    with _threads_replaced():
        run_virtually(seed, simulation.run)
    return report


def _partition(process: Process, key: PartitionId) -> Partition | None:
    found = process.broker.partitions.by_name.get(key[0], [])[key[1] : key[1] + 1]
    return found[0] if found and isinstance(found[0], Partition) else None


@attrs.define(eq=False)
class Simulation:
    report: Report
    faults_s: float
    node_count: int
    kind: str | None = None
    nodes: list[Node] = attrs.field(factory=list)
    history: History = attrs.field(factory=History)
    ledger: Ledger = attrs.field(factory=Ledger)
    _readers: list[Reader] = attrs.field(factory=list)
    """Those that have read all the time."""
    _is_over: bool = False
    _stays_dead: bool = False
    """Nodes are not started any more."""
    _faults_end_at: float = 0.0
    _eligibility: Eligibility = attrs.field(init=False)
    _group: SimGroup = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._eligibility = Eligibility(
            lambda node_id: self.nodes[node_id - 1].ended,
            self._log_end,
            self._committed,
            trio.current_time,
            self._after,
            self._lose,
        )

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.nodes[0].calendar.after(seconds, callback)

    def _log_end(self, node_id: int, key: PartitionId) -> int | None:
        process = self.nodes[node_id - 1].process
        if process is None:
            return None
        partition = _partition(process, key)
        return 0 if partition is None else partition.log_end_offset

    def _committed(self, key: PartitionId) -> int:
        here = (_partition(it, key) for it in self._processes)
        ends = (it.high_watermark for it in here if it is not None and self.history.has_lost(key, it))
        return max(self.history.ends.get(key, 0), *ends, 0)

    def _lose(self, loss: Loss) -> None:
        self.report.note(f"lost {loss}")
        self.report.losses += 1
        self.history.lose(loss)
        self.ledger.lose(loss)

    async def run(self, chance: random.Random, calendar: Calendar) -> None:
        async with trio.open_nursery() as nursery:
            network = Network(calendar, random.Random(chance.random()), self.report.note)
            keeper = Keeper(calendar, network, "MkU3OEVBNTcwNTJENDM2Qk", on_append=self._eligibility.appended)
            nursery.start_soon(calendar.run)
            try:
                await self._run(chance, network, keeper, nursery)
            finally:
                for node in self.nodes:
                    node.kill()
                nursery.cancel_scope.cancel()

    async def _run(self, chance: random.Random, network: Network, keeper: Keeper, nursery: trio.Nursery) -> None:
        host = network.host(KEEPER)
        host.slowness = host.usual_slowness = chance.choice(KEEPER_SLOWNESS)
        settings = (*SETTINGS, f"replica.fetch.response.max.bytes={chance.choice(FETCHED_AT_ONCE_BYTES)}")
        for node_id in range(1, self.node_count + 1):
            own = random.Random(chance.random())
            node = Node(node_id, keeper.calendar, network, keeper, own, settings, nursery, self.report.note)
            self.nodes.append(node)
            assert node.start()
        self._group = self._chosen_group(chance)
        nursery.start_soon(self._check_continuously)
        await self._with_clients(chance, network, keeper, nursery)
        await self._write_everywhere(network, chance, "client-after", "the last fault")
        await self._end(network, chance)
        await self._lose_a_node(network, chance)
        self.report.virtual_s = trio.current_time()
        self.report.unclean_elections = self._eligibility.unclean_elections

    def _chosen_group(self, chance: random.Random) -> SimGroup:
        truth = Truth(self._eligibility, lambda node_id: self.nodes[node_id - 1].process, TOPIC)
        coordinates = partial(self._eligibility.leads, (CONSUMER_OFFSETS, java_hash(GROUP) % INTERNAL_PARTITIONS))
        own = random.Random(chance.random())
        chosen = own.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        self.report.kind = self.kind or chosen
        return KINDS[self.report.kind](self.ledger, truth, PARTITIONS, coordinates, own)

    @property
    def _all_partitions(self) -> list[PartitionId]:
        return [*PARTITIONS_OF_ALL, *self._group.own_partitions]

    async def _with_clients(
        self, chance: random.Random, network: Network, keeper: Keeper, nursery: trio.Nursery
    ) -> None:
        now_ms = self.nodes[0].clock.now_ms
        with trio.move_on_after(PROGRESS_WITHIN_S) as scope:
            await self._create_topic(network, chance)
        if scope.cancelled_caught:
            raise BrokenPromise(f"{PROGRESS_WITHIN_S:g} s after the nodes' start, there is no topic")
        self._faults_end_at = trio.current_time() + self.faults_s

        def cluster(name: str) -> Cluster:
            return self._cluster(network, f"client-{name}", chance)

        def stops() -> bool:
            return self._is_over

        clients: list[Client] = [
            Producer(cluster("a"), self.ledger, PARTITIONS, now_ms, stops),
            *([] if self._group.is_dear else [Producer(cluster("b"), self.ledger, PARTITIONS, now_ms, stops)]),
            HastyProducer(cluster("c"), PARTITIONS, now_ms, stops),
            TransactionalProducer(cluster("d"), self.ledger, PARTITIONS, now_ms, stops),
            *([] if self._group.is_dear else [Reader(cluster("e"), self.ledger, self.history, PARTITIONS, stops, 0)]),
            Reader(cluster("f"), self.ledger, self.history, PARTITIONS, stops, 1),
            *self._group.members([cluster(it) for it in "ghj"], stops, self._faults_end_at),
            Operator(cluster("i"), self._all_partitions, [it.node_id for it in self.nodes], stops),
        ]
        faults = Faults(
            self.nodes,
            network,
            keeper,
            random.Random(chance.random()),
            nursery,
            self.report.note,
            lambda: trio.current_time() >= self._faults_end_at,
        )
        self.report.faults = faults.counts
        nursery.start_soon(self._start_again, random.Random(chance.random()))
        with trio.move_on_after(self.faults_s + SETTLED_WITHIN_S) as scope:
            async with trio.open_nursery() as together:
                for client in clients:
                    together.start_soon(client.run)
                await faults.run()
                await trio.sleep(0.3)
                self._is_over = True
        for client in clients:
            await client.cluster.close()
            if isinstance(client, Reader):
                self._readers.append(client)
        if scope.cancelled_caught and (lack := self._group.lacks(self._faults_end_at)) is not None:
            raise BrokenPromise(f"{SETTLED_WITHIN_S:g} s after the last fault, {lack}")
        if scope.cancelled_caught:
            raise BrokenPromise(f"{SETTLED_WITHIN_S:g} s after the last fault, requests are still not answered")

    def _cluster(self, network: Network, name: str, chance: random.Random) -> Cluster:
        return Cluster(network, name, [it.address for it in self.nodes], TOPIC, random.Random(chance.random()))

    async def _create_topic(self, network: Network, chance: random.Random) -> None:
        cluster = self._cluster(network, "client-admin", chance)

        async def create() -> None:
            if len(self._processes) < self.node_count:
                raise Again("not all nodes are up")
            topics = [CreatableTopic(TOPIC, PARTITIONS, self.node_count), *self._group.topics()]
            answer = await cluster.call(cluster.bootstrap[0], CreateTopicsRequest(topics))
            if any(it.error_code not in (0, 36) for it in answer.topics):
                raise Again(str(answer.topics))

        await cluster.persist(create)
        await cluster.persist(partial(self._group.begin, cluster))
        while not all(map(self._group.has_begun, self._processes)):
            await trio.sleep(0.01)
        await cluster.close()

    async def _start_again(self, chance: random.Random) -> None:
        """Nodes that ended come back; during the faults after a while."""
        while not self._stays_dead:
            for node in self.nodes:
                if node.process is None:
                    if trio.current_time() < self._faults_end_at:
                        await trio.sleep(chance.uniform(0.0, 1.0))
                    if node.process is None:
                        node.start()
            await trio.sleep(0.1)

    # Promises

    async def _check_continuously(self) -> None:
        while True:
            self.history.check(self._processes)
            self._eligibility.check()
            if self._eligibility.broken is not None:
                raise BrokenPromise(self._eligibility.broken)
            await trio.sleep(CHECK_INTERVAL_S)

    @property
    def _processes(self) -> list[Process]:
        return [it.process for it in self.nodes if it.process is not None]

    async def _end(self, network: Network, chance: random.Random) -> None:
        """All nodes are up. Everything that was promised is there, and the same everywhere."""
        cluster = self._cluster(network, "client-end", chance)
        readers = [Reader(cluster, self.ledger, self.history, PARTITIONS, lambda: True, level) for level in (0, 1)]
        found = []
        operator = Operator(cluster, self._all_partitions, [it.node_id for it in self.nodes], lambda: True)
        with trio.move_on_after(SETTLED_WITHIN_S) as scope:
            await self._settle(operator)
            await cluster.persist(cluster.refresh_metadata)
            found.append(await readers[0].read_all())
            found.append(await readers[1].read_all())
            await self._group.end(cluster, found)
            if isinstance(self._group, SharingGroup) and self._group.has_letters:
                self._group.check_letters(await self._letters(network, chance))
            await self._settle(operator)
        if scope.cancelled_caught:
            raise BrokenPromise(f"the replicas are not the same within {SETTLED_WITHIN_S:g} s")
        # Nothing else runs from here on.
        self.history.check(self._processes)
        for process in self._processes:
            self.history.check_whole(process)
        self._check_bytes()
        self.ledger.check_records(found[0])
        self.ledger.check_transactions(found[1])
        for reader in self._readers:
            reader.forget_lost()
            self.ledger.check_read(reader.records, found[0])
            if reader.isolation_level:
                self.ledger.check_no_aborted(reader.records)
        self.report.acknowledged = self.ledger.acknowledgements
        self.report.transactions = sum(it != "unknown" for it in self.ledger.transactions.values())
        self.report.commits = sum(offset for _, offset in self.ledger.commits.values())
        if isinstance(self._group, SharingGroup):
            self.report.accepted = self._group.deliveries.accepted
        await cluster.close()

    async def _letters(self, network: Network, chance: random.Random) -> list[Record]:
        cluster = self._cluster(network, "client-letters", chance)
        cluster.topic = LETTERS
        await cluster.persist(cluster.refresh_metadata)
        found = await Reader(cluster, self.ledger, self.history, 1, lambda: True, 0).read_all()
        await cluster.close()
        return found.get((LETTERS, 0), [])

    async def _lose_a_node(self, network: Network, chance: random.Random) -> None:
        """Kills a node that does not come back. The others continue without it."""
        if chance.random() > SHARE_WITH_A_LOSS:
            return
        self._stays_dead = True
        chance.choice(self.nodes).kill()
        await self._write_everywhere(network, chance, "client-last", "the death of a node")

    async def _write_everywhere(self, network: Network, chance: random.Random, name: str, after: str) -> None:
        """Checks that every partition takes writes."""
        cluster = self._cluster(network, name, chance)
        producer = Producer(cluster, self.ledger, PARTITIONS, self.nodes[0].clock.now_ms, lambda: True)
        with trio.move_on_after(PROGRESS_WITHIN_S) as scope:
            await producer.run()
            for index in range(PARTITIONS):
                await producer.send(index)
        if scope.cancelled_caught:
            raise BrokenPromise(f"{PROGRESS_WITHIN_S:g} s after {after}, a write is not acknowledged")
        await cluster.close()

    async def _settle(self, operator: Operator) -> None:
        """Returns when all nodes are up and have the same, and no transaction is open.

        A request of the operator may be carried out after it timed out, and after all nodes were given all partitions.
        So they are given them once more.
        """
        while True:
            with trio.move_on_after(GIVEN_AGAIN_AFTER_S):
                while len(self._processes) < len(self.nodes) or not self._is_settled():
                    await trio.sleep(0.1)
                return
            await operator.run()

    def _is_settled(self) -> bool:
        """True if the partitions of all nodes end at the same offset, and at that high watermark."""
        first, *others = self._processes
        for partition in first.broker.partitions:
            for process in others:
                other = _partition(process, (partition.topic, partition.index))
                if other is None:
                    return False
                ends = {bound for it in (partition, other) for bound in (it.log_end_offset, it.high_watermark)}
                if not self.ledger.losses:  # A transaction that has lost its coordinator's records stays open.
                    ends |= {it.last_stable_offset for it in (partition, other)}
                if len(ends) > 1:
                    return False
        return len({sum(1 for _ in it.broker.partitions) for it in self._processes}) == 1

    def _check_bytes(self) -> None:
        first, *others = self._processes
        for partition in first.broker.partitions:
            replicas = [it.broker.partitions.find(partition.topic, partition.index) for it in others]
            # Records of __share_group_state are deleted, which a follower does a moment later.
            start = max(it.log_start_offset for it in (partition, *replicas))
            batches = [piece.read() for _, piece in partition.log.batches(start)]
            if any([piece.read() for _, piece in it.log.batches(start)] != batches for it in replicas):
                raise BrokenPromise(f"{partition.topic}-{partition.index} is not the same on all nodes")
