"""The faults of a cluster. After each the cluster has to recover by itself; `scenario.py` waits for that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from random import Random
from typing import Final

import attrs

from testkit.basics.proxy import Proxy
from testkit.kills.cluster_faults.forms import SESSION_TIMEOUT_MS, OnZooKeeper
from testkit.kills.cluster_faults.nodes import NODES, ClusterOfProcesses

ROLLING: Final = "restarted one after the other"
GROWN: Final = "grown"
SHRUNK: Final = "shrunk"
FOURTH: Final = 4
"""The node that comes when the cluster grows, and goes when it shrinks."""
LONGER_THAN_A_SESSION_S: Final = SESSION_TIMEOUT_MS / 1000 * 1.5


@attrs.frozen
class Fault:
    """A fault: its kind, its node, and its duration."""

    kind: str
    node_id: int
    lasts_s: float
    seed: int
    """The seed of the fault's further random choices."""

    @property
    def others(self) -> list[int]:
        return [it for it in NODES if it != self.node_id]


Suffer = Callable[[ClusterOfProcesses, Fault], None]


def faults(chance: Random, kinds: Mapping[str, Suffer], *, longest_s: float) -> Iterator[Fault]:
    """Without end, each kind about equally often. `longest_s` is what a cut or a pause lasts at most."""
    rounds = chain.from_iterable(_round(kinds, chance) for _ in repeat(None))
    for kind in rounds:
        yield Fault(kind, chance.choice(NODES), chance.uniform(0, longest_s), chance.getrandbits(32))


def _round(kinds: Mapping[str, Suffer], chance: Random) -> list[str]:
    """Returns all kinds in random order, but growth before shrinking."""
    order = chance.sample(sorted(kinds), len(kinds))
    if GROWN in kinds and (positions := sorted(order.index(it) for it in (GROWN, SHRUNK))):
        order[positions[0]], order[positions[1]] = GROWN, SHRUNK
    return order


# Processes


def _killed(cluster: ClusterOfProcesses, fault: Fault) -> None:
    cluster.kill(fault.node_id)
    time.sleep(fault.lasts_s)
    cluster.start(fault.node_id)


def _two_killed(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """Two of three nodes are killed. Partitions with two as their min.insync.replicas wait."""
    others = fault.others
    for node_id in others:
        cluster.kill(node_id)
    time.sleep(fault.lasts_s)
    for node_id in others:
        cluster.start(node_id)


def _stopped(cluster: ClusterOfProcesses, fault: Fault) -> None:
    cluster.stop(fault.node_id)
    time.sleep(fault.lasts_s)
    cluster.start(fault.node_id)


def _paused(cluster: ClusterOfProcesses, fault: Fault) -> None:
    cluster.pause(fault.node_id)
    time.sleep(fault.lasts_s)
    cluster.resume(fault.node_id)


def _restarted_one_after_the_other(cluster: ClusterOfProcesses, fault: Fault) -> None:
    for node_id in sorted(cluster.nodes):
        cluster.stop(node_id)
        cluster.start(node_id)
        cluster.wait_until_whole()


def _replaced(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """Its disk is lost."""
    cluster.kill(fault.node_id)
    cluster.empty(fault.node_id)
    cluster.start(fault.node_id)


def _grown(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """Half of all partitions move one replica to the new node; some are led there from then on."""
    chance = Random(fault.seed)
    cluster.add(FOURTH)
    cluster.wait_until_whole()
    replicas = cluster.replicas()
    moving = chance.sample(sorted(replicas), len(replicas) // 2)
    cluster.move({at: _with_one_replaced(replicas[at], chance) for at in moving})


def _with_one_replaced(replicas: list[int], chance: Random) -> list[int]:
    index = chance.randrange(len(replicas))
    return [*replicas[:index], FOURTH, *replicas[index + 1 :]]


def _shrunk(cluster: ClusterOfProcesses, fault: Fault) -> None:
    moving = {at: node_ids for at, node_ids in cluster.replicas().items() if FOURTH in node_ids}
    cluster.move({at: [_stand_in(it, node_ids) for it in node_ids] for at, node_ids in moving.items()})
    cluster.stop(FOURTH)
    cluster.forget(FOURTH)


def _stand_in(node_id: int, replicas: list[int]) -> int:
    return node_id if node_id != FOURTH else next(it for it in NODES if it not in replicas)


# Connections


def _disturbed(way: Callable[[ClusterOfProcesses, int], Proxy], disturb: Callable[[Proxy], None]) -> Suffer:
    def suffer(cluster: ClusterOfProcesses, fault: Fault) -> None:
        proxy = way(cluster, fault.node_id)
        disturb(proxy)
        time.sleep(fault.lasts_s)
        if Random(fault.seed).random() < 0.5:
            proxy.drop()  # what was under way never arrives
        proxy.heal()

    return suffer


def _of_brokers(cluster: ClusterOfProcesses, node_id: int) -> Proxy:
    """Others follow a node, and send it markers, by this way."""
    return cluster.nodes[node_id].brokers


def _of_clients(cluster: ClusterOfProcesses, node_id: int) -> Proxy:
    return cluster.nodes[node_id].clients


def _cut_off_and_killed(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """A leader loses its followers, and is killed. Its later records are gone, so they must not be acknowledged."""
    proxy = _of_brokers(cluster, fault.node_id)
    proxy.stall()
    time.sleep(fault.lasts_s / 2)
    cluster.kill(fault.node_id)
    proxy.heal()
    time.sleep(fault.lasts_s / 2)
    cluster.start(fault.node_id)


def _another_killed_while_cut_off(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """Cuts a node off from the others, one of which dies meanwhile."""
    proxy = _of_brokers(cluster, fault.node_id)
    proxy.cut()
    time.sleep(fault.lasts_s / 2)
    other = Random(fault.seed).choice(fault.others)
    cluster.kill(other)
    time.sleep(fault.lasts_s / 2)
    proxy.heal()
    cluster.start(other)


# ZooKeeper


def _zookeeper(cluster: ClusterOfProcesses) -> OnZooKeeper:
    assert isinstance(cluster.form, OnZooKeeper)
    return cluster.form


def _zookeeper_killed(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """ZooKeeper comes back with its data, and its sessions survive. Meanwhile the nodes serve."""
    server = _zookeeper(cluster).server
    server.kill()
    time.sleep(fault.lasts_s)
    server.start()


def _zookeeper_killed_and_a_node(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """No leader can be elected before ZooKeeper is back."""
    server = _zookeeper(cluster).server
    server.kill()
    cluster.kill(fault.node_id)
    time.sleep(fault.lasts_s)
    server.start()
    cluster.start(fault.node_id)


def _zookeeper_stood_still(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """ZooKeeper stops for longer than its sessions last. When it resumes, it expires those that do not renew first."""
    server, ended = _zookeeper(cluster).server, len(cluster.ended_by_themselves)
    connected = {node_id: _connections(cluster, node_id) for node_id in cluster.nodes}
    server.pause()
    time.sleep(LONGER_THAN_A_SESSION_S)
    server.resume()

    def is_settled(node_id: int) -> bool:
        has_ended = node_id in cluster.ended_by_themselves[ended:]
        return has_ended or _connections(cluster, node_id) > connected[node_id]

    cluster.until(lambda: all(map(is_settled, connected)), "each node is connected again, or has ended")


def _connections(cluster: ClusterOfProcesses, node_id: int) -> int:
    """The number of times a node has reconnected to ZooKeeper, by its log."""
    return cluster.nodes[node_id].running.log().count("is connected to ZooKeeper again")


def _session_expired(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """The process stood still for longer; others have taken over, and it ends when it learns of that."""
    before = len(cluster.ended_by_themselves)
    cluster.pause(fault.node_id)
    time.sleep(LONGER_THAN_A_SESSION_S)
    cluster.resume(fault.node_id)
    cluster.until(lambda: fault.node_id in cluster.ended_by_themselves[before:], "the node has ended")


def _cut_off_from_zookeeper(cluster: ClusterOfProcesses, fault: Fault) -> None:
    """A node loses its session, while clients and brokers still reach its process."""
    before, proxy = len(cluster.ended_by_themselves), _zookeeper(cluster).proxies[fault.node_id]
    proxy.cut()
    time.sleep(LONGER_THAN_A_SESSION_S)
    proxy.heal()
    cluster.until(lambda: fault.node_id in cluster.ended_by_themselves[before:], "the node has ended")


EVERYWHERE: Final[Mapping[str, Suffer]] = {
    "cut off and killed": _cut_off_and_killed,
    "SIGTERM": _stopped,
    "SIGSTOP": _paused,
    ROLLING: _restarted_one_after_the_other,
    "replaced": _replaced,
    GROWN: _grown,
    SHRUNK: _shrunk,
    "followers dropped": _disturbed(_of_brokers, Proxy.drop),
    "followers refused": _disturbed(_of_brokers, Proxy.cut),
    "followers stalled": _disturbed(_of_brokers, Proxy.stall),
    "followers get no answers": _disturbed(_of_brokers, lambda it: it.stall(requests=False)),
    "clients dropped": _disturbed(_of_clients, Proxy.drop),
    "clients refused": _disturbed(_of_clients, Proxy.cut),
    "clients stalled": _disturbed(_of_clients, Proxy.stall),
    "clients get no answers": _disturbed(_of_clients, lambda it: it.stall(requests=False)),
}
MORE: Final[Mapping[str, Suffer]] = {
    "SIGKILL": _killed,
    "two SIGKILLs": _two_killed,
    "another one killed while cut off": _another_killed_while_cut_off,
}
ZOOKEEPER: Final[Mapping[str, Suffer]] = {
    "ZooKeeper killed": _zookeeper_killed,
    "ZooKeeper stood still": _zookeeper_stood_still,
    "a session expired": _session_expired,
    "cut off from ZooKeeper": _cut_off_from_zookeeper,
}
MORE_ZOOKEEPER: Final[Mapping[str, Suffer]] = {"ZooKeeper and SIGKILL": _zookeeper_killed_and_a_node}
ALL: Final[Mapping[str, Mapping[str, Suffer]]] = {
    "local": {**EVERYWHERE, **MORE},
    "zookeeper": {**EVERYWHERE, **MORE, **ZOOKEEPER, **MORE_ZOOKEEPER},
}
