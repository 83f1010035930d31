"""The faults, drawn from the seed: one after another, some of them at the same time.

Each run has only some kinds of faults. With fewer faults, clients make more progress, and the faults meet more of their
work.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import attrs
import trio

from testkit.worlds.simulation.keeper import NAME, Keeper
from testkit.worlds.simulation.network import Host, Network
from testkit.worlds.simulation.node import Node

FEWEST_KINDS = 3
FAULTS_PER_S = (2.0, 4.0, 6.0)
"""The average number of faults in a run."""


@attrs.define(eq=False)
class Faults:
    """A source of faults until `stops` returns True; then everything is mended."""

    nodes: Sequence[Node]
    network: Network
    keeper: Keeper
    random: random.Random
    nursery: trio.Nursery
    trace: Callable[[str], None]
    stops: Callable[[], bool]
    counts: dict[str, int] = attrs.field(factory=dict)
    _mends: dict[Callable[[], None], None] = attrs.field(factory=dict)

    async def run(self) -> None:
        weights: dict[Callable[[Node], None], float] = {
            self._kill: 4,
            self._power: 2,
            self._power_of_several: 1,
            self._stop: 2,
            self._cut_pair: 3,
            self._cut_off: 2,
            self._cut_from_keeper: 2,
            self._expire: 2,
            self._slow_disk: 1,
            self._slow_host: 1,
            self._slow_keeper: 3,
            self._jump: 1,
            self._refuse: 1,
        }
        kinds = self.random.sample([*weights], self.random.randint(FEWEST_KINDS, len(weights)))
        faults_per_s = self.random.choice(FAULTS_PER_S)
        while not self.stops():
            await trio.sleep(self.random.expovariate(faults_per_s))
            if self.stops():
                break
            fault = self.random.choices(kinds, [weights[it] for it in kinds])[0]
            node = self.random.choice(self.nodes)
            name = fault.__name__.strip("_")
            if node.process is None:
                continue
            self.counts[name] = self.counts.get(name, 0) + 1
            self.trace(f"fault {name} {node.node_id}")
            fault(node)
        for mend in list(self._mends):
            self._mend(mend)

    def _later(self, mend: Callable[[], None], least_s: float, most_s: float) -> None:
        self._mends[mend] = None

        async def wait() -> None:
            await trio.sleep(self.random.uniform(least_s, most_s))
            self._mend(mend)

        self.nursery.start_soon(wait)

    def _mend(self, mend: Callable[[], None]) -> None:
        if mend in self._mends:
            del self._mends[mend]
            mend()

    # Processes

    def _kill(self, node: Node) -> None:
        node.kill()

    def _power(self, node: Node) -> None:
        node.kill(power=True)

    def _power_of_several(self, node: Node) -> None:
        """Cuts the power of several nodes at once."""
        others = [it for it in self.nodes if it is not node]
        for it in (node, *self.random.sample(others, self.random.randint(1, len(others)))):
            it.kill(power=True)

    def _stop(self, node: Node) -> None:
        self.nursery.start_soon(node.stop)

    # The network

    def _cut_pair(self, node: Node) -> None:
        other = self.random.choice([it for it in self.nodes if it is not node])
        ways = [(node.host.name, other.host.name), (other.host.name, node.host.name)]
        self._later(self.network.cut(self.random.choice([ways, ways, ways[:1]])), 0.05, 2.5)

    def _cut_off(self, node: Node) -> None:
        """Cuts a node off from the other nodes and the keeper, and perhaps from clients."""
        reached = [it for it in self.network.hosts if it.startswith("client")] if self.random.random() < 0.5 else []
        others = [it for it in self.network.hosts if it not in (node.host.name, *reached)]
        ways = [way for it in others for way in ((node.host.name, it), (it, node.host.name))]
        self._later(self.network.cut(ways), 0.1, 2.5)

    def _cut_from_keeper(self, node: Node) -> None:
        ways = [(node.host.name, NAME), (NAME, node.host.name)]
        self._later(self.network.cut(self.random.choice([ways, ways[:1], ways[1:]])), 0.1, 2.0)

    def _expire(self, node: Node) -> None:
        assert node.process is not None
        node.process.membership.expire()

    # Slowness, and clocks

    def _slow_disk(self, node: Node) -> None:
        node.disk_slowness = self.random.choice([20.0, 200.0])

        def mend() -> None:
            node.disk_slowness = 1.0

        self._later(mend, 0.2, 2.0)

    def _slow_host(self, node: Node) -> None:
        self._slow_down(node.host)

    def _slow_keeper(self, _node: Node) -> None:
        """Delays the nodes' writes of metadata, so that they conflict with each other."""
        self._slow_down(self.network.host(NAME))

    def _slow_down(self, host: Host) -> None:
        host.slowness = self.random.choice([20.0, 100.0])

        def mend() -> None:
            host.slowness = host.usual_slowness

        self._later(mend, 0.2, 2.0)

    def _jump(self, node: Node) -> None:
        node.clock.jump_ms += self.random.choice([-3_600_000, -5_000, 5_000, 3_600_000])

    def _refuse(self, node: Node) -> None:
        self.keeper.refuses = True

        def mend() -> None:
            self.keeper.refuses = False

        self._later(mend, 0.05, 0.5)
