"""Three nodes under the bank, and the ways in which they, and tellers, come to harm."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

from testkit.kills.bank import scenario
from testkit.kills.bank.scenario import Bank, Day
from testkit.kills.cluster_faults.forms import form_of
from testkit.kills.cluster_faults.nodes import NODES, ClusterOfProcesses
from testkit.kills.harness import Lap

ENDS_WITHIN_S = scenario.ENDS_WITHIN_S + 20.0
"""The maximum time for an open transaction to end while its coordinator moves to another node."""
ORDERS_AT_ONCE = 20, 80
"""A transaction over three nodes takes longer."""
LONGEST_PAUSE_S = 1.5
"""The longest pause of a node."""


@attrs.define(eq=False)
class Nodes:
    """Nodes with the interface of the bank. `kill` is for a random node, and `start` for all that are down."""

    cluster: ClusterOfProcesses
    random: random.Random
    _last: int = NODES[0]

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def log_file(self) -> Path:
        """The log of the last node that was harmed."""
        return self.cluster.nodes[self._last].folder / "log"

    def kill(self) -> None:
        self.cluster.kill(self._pick())

    def stop(self) -> None:
        """Stops them gracefully."""
        self.cluster.stop(self._pick())

    def pause(self) -> int:
        """Pauses a node, and returns it."""
        self.cluster.pause(self._pick())
        return self._last

    def resume(self, node_id: int) -> None:
        self.cluster.resume(node_id)
        self.cluster.wait_until_whole()

    def begin_start(self) -> None:
        for node_id, node in self.cluster.nodes.items():
            if node.process is None:
                self.cluster.start(node_id)

    def start(self) -> None:
        self.begin_start()
        self.cluster.wait_until_whole()

    def _pick(self) -> int:
        self._last = self.random.choice([it for it, node in self.cluster.nodes.items() if node.process is not None])
        return self._last


@contextmanager
def three_nodes(folder: Path, form: str, seed: int) -> Iterator[Nodes]:
    """`form`: of the cluster, `local` or `zookeeper`."""
    with ClusterOfProcesses(folder, form_of(form, folder)) as cluster:
        yield Nodes(cluster, random.Random(seed))


class BankOfNodes(Bank):
    """Harmed in these ways `only`, or in all. In the end of a lap the nodes' logs must have no traceback."""

    def __init__(
        self,
        nodes: Nodes,
        folder: Path,
        name: str,
        *,
        only: Collection[str] = (),
        orders_at_once: tuple[int, int] = ORDERS_AT_ONCE,
    ) -> None:
        super().__init__(
            nodes,
            folder,
            name,
            ways={name: way for name, way in ways(nodes).items() if not only or name in only},
            maintain=nodes.cluster.maintain,
            ends_within_s=ENDS_WITHIN_S,
            orders_at_once=orders_at_once,
        )
        self._cluster = nodes.cluster

    def run_lap(self, lap: Lap) -> None:
        super().run_lap(lap)
        self.account.ended_by_themselves = len(self._cluster.ended_by_themselves)
        assert self._cluster.bugs() == []


def ways(nodes: Nodes) -> Mapping[str, Callable[[Day], None]]:
    """Returns the ways by the name of what is harmed."""

    def a_node(day: Day) -> None:
        day.the_broker()

    def a_node_in_good_order(day: Day) -> None:
        day.pause()
        nodes.stop()
        day.start()

    def a_node_that_stands_still(day: Day) -> None:
        day.pause()
        node_id = nodes.pause()
        day.pause(LONGEST_PAUSE_S)
        nodes.resume(node_id)
        day.start()

    def two_nodes(day: Day) -> None:
        day.pause()
        nodes.kill()
        day.pause()
        nodes.kill()
        day.start()

    return {
        "a teller": Day.a_teller,
        "a teller that is not dead": Day.a_teller_that_is_not_dead,
        "a node": a_node,
        "a node in good order": a_node_in_good_order,
        "a node that stands still": a_node_that_stands_still,
        "two nodes": two_nodes,
        "a teller and a node": Day.both,
    }
