"""The state machine of the search for a lost record."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kwire_protocol.messages.fetch import FetchResponse
from kwire_protocol.messages.list_offsets import ListOffsetsResponse

from kwire.replication.fetching import Fetcher
from testkit.worlds.replication.world import NODES, World

nodes = st.sampled_from(NODES)


class ReplicationMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.on_the_way: dict[int, tuple[Fetcher, FetchResponse | ListOffsetsResponse]] = {}
        self.high_watermarks: dict[int, int] = {}
        self.count = 0

    def is_up(self, node_id: int) -> bool:
        return node_id in self.world.brokers

    @rule(which=st.integers(0, 2), acks=st.sampled_from([-1, -1, 1]))
    def produce(self, which: int, acks: int) -> None:
        leaders = self.world.leaders
        if leaders:
            self.count += 1
            self.world.produce(leaders[which % len(leaders)], b"value %d" % self.count, acks)

    @rule(nodes=st.sampled_from([(1,), (2,), (3,), (1, 2), (2, 3), (1, 3), (1, 2, 3)]))
    def replicate(self, nodes: tuple[int, ...]) -> None:
        self.produce(0, -1)
        for _ in range(3):
            for node_id in nodes:
                self.fetch(node_id, 1)

    @rule(node_id=nodes, times=st.integers(1, 3))
    def fetch(self, node_id: int, times: int) -> None:
        for _ in range(times):
            if self.is_up(node_id):
                self.world.fetch(node_id)

    @rule(node_id=nodes)
    def ask(self, node_id: int) -> None:
        fetcher = self.world.fetcher(node_id) if self.is_up(node_id) else None
        if fetcher is not None and not fetcher.has_request_in_flight:
            answer = self.world.answer(fetcher)
            if answer is not None:
                self.on_the_way[node_id] = fetcher, answer

    @rule(node_id=nodes)
    def deliver(self, node_id: int) -> None:
        fetcher, answer = self.on_the_way.pop(node_id, (None, None))
        if fetcher is not None and answer is not None and self.world.fetchers.get(node_id) is fetcher:
            fetcher.received(answer, self.world.clock.now_ms())

    @rule(node_id=nodes)
    def lose_the_connection(self, node_id: int) -> None:
        if self.on_the_way.pop(node_id, None) is not None and node_id in self.world.fetchers:
            self.world.fetchers[node_id].disconnected(self.world.clock.now_ms())

    @rule(leader=nodes, by=nodes)
    def elect(self, leader: int, by: int) -> None:
        if self.is_up(leader) and self.is_up(by):
            self.world.elect(by, leader)

    @precondition(lambda self: not self.world.cluster.deaf)
    @rule(node_id=nodes)
    def do_not_listen(self, node_id: int) -> None:
        self.world.cluster.deaf.add(node_id)

    @rule(node_id=nodes)
    def hear(self, node_id: int) -> None:
        if self.is_up(node_id):
            self.world.hear(node_id)

    @rule(node_id=nodes)
    def decide_late(self, node_id: int) -> None:
        if self.is_up(node_id):
            self.world.slow[node_id].is_slow = True

    @rule(node_id=nodes)
    def decide(self, node_id: int) -> None:
        if self.is_up(node_id):
            self.world.slow[node_id].decide()

    @rule(seconds=st.sampled_from([1, 16, 31]))
    def wait(self, seconds: int) -> None:
        self.world.clock.time_ms += 1000 * seconds

    @rule(node_id=nodes)
    def look_for_who_is_behind(self, node_id: int) -> None:
        broker = self.world.brokers.get(node_id)
        if broker is not None:
            broker.in_sync.reconcile(broker.partitions, self.world.clock.now_ms())

    @precondition(lambda self: len(self.world.brokers) > 1)
    @rule(node_id=nodes)
    def kill(self, node_id: int) -> None:
        if self.is_up(node_id):
            self.world.cluster.deaf.clear()
            for it in list(self.world.brokers):
                self.world.hear(it)
            self.world.kill(node_id)
            self.on_the_way.pop(node_id, None)
            self.high_watermarks.pop(node_id, None)

    @rule(node_id=nodes)
    def restart(self, node_id: int) -> None:
        if not self.is_up(node_id):
            self.world.open(node_id)

    @rule()
    def settle(self) -> None:
        self.on_the_way.clear()
        for fetcher in self.world.fetchers.values():
            if fetcher.has_request_in_flight:
                fetcher.disconnected(self.world.clock.now_ms())
        self.world.settle()
        ends = {self.world.partition(it).log_end_offset for it in self.world.brokers}
        if self.world.registered.leader in self.world.brokers:
            assert len(ends) == 1, f"the logs end at {ends}"
            assert {*self.world.registered.isr} >= {*self.world.brokers}, "who has everything is in sync"

    @invariant()
    def nothing_is_lost(self) -> None:
        self.world.check()
        for node_id in self.world.brokers:
            high_watermark = self.world.partition(node_id).high_watermark
            assert high_watermark >= self.high_watermarks.get(node_id, 0), "a high watermark goes back"
            self.high_watermarks[node_id] = high_watermark
