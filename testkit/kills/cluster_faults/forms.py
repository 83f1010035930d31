"""The shared storage of a cluster's nodes: a folder of their machine, or a ZooKeeper."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, Protocol

import attrs

from devtools.zookeeper import ZooKeeper
from testkit.basics.proxy import Proxy

SESSION_TIMEOUT_MS: Final = 4_000
"""Short, so that a test need not wait long, and yet longer than a busy machine keeps a process waiting."""


class Form(Protocol):
    name: ClassVar[str]

    def start(self) -> None: ...

    def close(self) -> None: ...

    def settings(self, node_id: int) -> list[str]:
        """Returns the settings by which a node finds the others."""

    def may_have_ended(self, log: str) -> bool:
        """True if a node that ended by itself, with this log, was right to do so; a supervisor starts it again."""


@attrs.define(eq=False)
class LocalFolder:
    """`folder` must have a short path."""

    name: ClassVar = "local"
    folder: Path

    def start(self) -> None: ...

    def close(self) -> None: ...

    def settings(self, node_id: int) -> list[str]:
        return [f"kwire.cluster.dir={self.folder}"]

    def may_have_ended(self, log: str) -> bool:
        return False


@attrs.define(eq=False)
class OnZooKeeper:
    """A server of its own; each node reaches it by a proxy of its own."""

    name: ClassVar = "zookeeper"
    server: ZooKeeper = attrs.field(factory=ZooKeeper)
    proxies: dict[int, Proxy] = attrs.field(factory=dict)

    def start(self) -> None:
        self.server.start()

    def close(self) -> None:
        for proxy in self.proxies.values():
            proxy.close()
        self.server.close()

    def settings(self, node_id: int) -> list[str]:
        if node_id not in self.proxies:
            self.proxies[node_id] = Proxy(self.server.connect)
        return [
            f"zookeeper.connect={self.proxies[node_id].address}/kwire",
            f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}",
            "zookeeper.connection.timeout.ms=60000",
        ]

    def may_have_ended(self, log: str) -> bool:
        """True if it ended with its session, which the last line of the log has."""
        last = log.rstrip().rpartition("\n")[2]
        return "with ZooKeeper is over" in last or "in ZooKeeper was removed" in last


def form_of(name: str, folder: Path) -> Form:
    """Returns the form with this name. The local form stores its data in `folder`."""
    return LocalFolder(folder / "c") if name == LocalFolder.name else OnZooKeeper()
