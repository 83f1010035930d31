"""The nodes that Kafka 3 had in ZooKeeper, too: the live brokers, the controller, and the cluster's id.

`/brokers/ids/1` and `/controller` are ephemeral. `Stat.owner` is the session that owns them, so the outcome of a
request whose response was lost can be looked up. The multi-operation that creates `/controller` also increments
`/controller_epoch`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from kwire.cluster.membership import NO_CONTROLLER, NodeIdTakenError
from kwire.cluster.zookeeper.keeper import (
    ConnectionLostError,
    Create,
    Keeper,
    NodeExistsError,
    NoNodeError,
    RefusedError,
    SetData,
    ZooKeeperError,
    create_if_missing,
    patiently,
)
from kwire.cluster.zookeeper.log_nodes import ROOT
from kwire.config.listeners import Listener

log = logging.getLogger(__name__)

BROKERS: Final = "/brokers"
BROKER_IDS: Final = f"{BROKERS}/ids"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"


@attrs.frozen
class Members:
    """The members at one moment. `alive` maps each live node's id to the number of the transaction that created it."""

    alive: Mapping[int, int]
    controller_id: int


def create_folders(keeper: Keeper) -> None:
    """Creates the nodes that every cluster has, if they are missing. Raises ZooKeeperError if Kafka uses the path."""
    # /kwire is the first node of a cluster of kwire's, so that nodes of Kafka are never mistaken for kwire's.
    has_brokers = patiently(keeper, lambda: keeper.exists(BROKERS)) is not None
    if has_brokers and patiently(keeper, lambda: keeper.exists(ROOT)) is None:
        raise ZooKeeperError(
            "zookeeper.connect leads to the nodes of an Apache Kafka cluster: "
            "give the cluster a path of its own, such as host:port/kwire"
        )
    for path in (ROOT, BROKERS, BROKER_IDS, "/cluster"):
        create_if_missing(keeper, path)
    create_if_missing(keeper, CONTROLLER_EPOCH, b"0")


def join_cluster(keeper: Keeper, proposed_id: str) -> str:
    """Returns the cluster's id: the proposed one, if this is the first node. Raises ZooKeeperError."""
    create_if_missing(keeper, CLUSTER_ID, _encode({"version": "1", "id": proposed_id}))
    content = _decode(patiently(keeper, lambda: keeper.get(CLUSTER_ID)).data)
    cluster_id = content.get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise ZooKeeperError(f"{CLUSTER_ID} in ZooKeeper has no cluster id")
    return cluster_id


def registration(endpoints: Sequence[Listener], rack: str | None, now_ms: int) -> dict[str, object]:
    """The content of `/brokers/ids/N`, Kafka's version 5. `host` and `port` are for clients without TLS and SASL."""
    plain = next((it for it in endpoints if it.security_protocol == "PLAINTEXT"), None)
    content: dict[str, object] = {
        "features": {},
        "listener_security_protocol_map": {it.name: it.security_protocol for it in endpoints},
        "endpoints": [str(it) for it in endpoints],
        "jmx_port": -1,
        "port": plain.port if plain is not None else -1,
        "host": plain.host if plain is not None else None,
        "version": 5,
        "timestamp": str(now_ms),
    }
    return content | ({"rack": rack} if rack is not None else {})


def create_broker_node(keeper: Keeper, node_id: int, content: Mapping[str, object]) -> int:
    """Makes the node alive. Returns its number in `Members.alive`.

    If the id is taken by a node on another host, it raises NodeIdTakenError. If that is on the same host, it may belong
    to a process that was killed, so it waits until that session has timed out, and raises only then.
    """
    path, has_waited = f"{BROKER_IDS}/{node_id}", False
    while True:
        taken_by = _register(keeper, path, _encode(content))
        if isinstance(taken_by, int):
            return taken_by
        if _hosts(taken_by) & _hosts(content) and not has_waited:
            log.info("node %d of this cluster has not ended yet: waiting until its session has timed out", node_id)
            keeper.wait_for_end(path)
            has_waited = True
            continue
        where = ", ".join(str(it) for it in _listed(taken_by)) or "an unknown address"
        raise NodeIdTakenError(
            f"node {node_id} of this cluster is running already, at {where}: stop it, or choose another node.id"
        )


def _register(keeper: Keeper, path: str, data: bytes) -> int | dict[str, object]:
    """Returns the number of our own node, or the content of another broker's."""
    for _ in keeper.attempts():
        try:
            with suppress(NodeExistsError):
                keeper.commit(Create(path, data, is_ephemeral=True))
            found = keeper.get(path)
            return found.stat.created if found.stat.owner == keeper.session_id else _decode(found.data)
        except (ConnectionLostError, NoNodeError):
            continue
    raise AssertionError("attempts end with an error")


def _listed(content: Mapping[str, object]) -> list[object]:
    endpoints = content.get("endpoints")
    return endpoints if isinstance(endpoints, list) else []


def _hosts(content: Mapping[str, object]) -> set[str]:
    return {str(it).rpartition(":")[0].rpartition("//")[2] for it in _listed(content)}


def read_members(keeper: Keeper, node_id: int, now_ms: int) -> Members:
    """Returns the live nodes, and the controller: this node, if there was none. Watches for the next change.

    Raises the errors of a Keeper.
    """
    alive = {}
    for name in keeper.children(BROKER_IDS, watch=True):
        if name.isascii() and name.isdigit():
            stat = keeper.exists(f"{BROKER_IDS}/{name}")
            if stat is not None:
                alive[int(name)] = stat.created
    while True:
        try:
            found = keeper.get(CONTROLLER, watch=True)
        except NoNodeError:
            _become_controller(keeper, node_id, now_ms)
            continue
        controller_id = _decode(found.data).get("brokerid")
        return Members(alive, controller_id if isinstance(controller_id, int) else NO_CONTROLLER)


def _become_controller(keeper: Keeper, node_id: int, now_ms: int) -> None:
    """Becomes the controller, unless another node is faster."""
    epoch = keeper.get(CONTROLLER_EPOCH)
    current = int(epoch.data) if epoch.data.isdigit() else 0
    content = {"version": 2, "brokerid": node_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1}
    with suppress(RefusedError):
        keeper.commit(
            Create(CONTROLLER, _encode(content), is_ephemeral=True),
            SetData(CONTROLLER_EPOCH, b"%d" % (current + 1), epoch.stat.version),
        )
        log.info("this node is the controller now, in epoch %d", current + 1)


def _encode(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, object]:
    """Returns an empty dictionary for data that is not a JSON object."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
