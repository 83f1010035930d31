"""The file descriptors of the process: their limit, and their division among files and connections.

    files          open segments of logs, a cache (`OpenFiles`)
    others         descriptors that must be available when they are needed: folders and small files that are synced,
                   modules that are imported, the cleaner's process, worker threads' files, connections to the other
                   brokers
    connections    the rest, for connections of clients. Connections above that number wait in the backlog

The operating system sets the limit; a process may raise its own up to the administrator's hard limit (`ulimit -Hn`).
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
from kwire_storage.disk.open_files import OpenFiles

if TYPE_CHECKING:
    from kwire.config.server import ServerConfig

OTHERS = 64
"""The descriptors for standard streams, listeners, folders, small files and files of workers, of a broker that is alone
and has one log dir."""
OF_A_LOG_DIR = 2
OF_A_BROKER = 6
"""The number of connections to another broker: `Peers` has five, and each of num.replica.fetchers has one."""

LEAST_CONNECTIONS = 8
"""The minimum number of connections that are served, even if there are too few descriptors."""

MOST = 1 << 20
"""The maximum that Linux allows for a process (fs.nr_open), even if the limit is higher."""


@attrs.frozen
class Budget:
    """The division of the process's descriptors; see the module."""

    limit: int
    """The operating system's limit."""
    files: int
    others: int
    """The number of other descriptors of a broker that is alone."""

    @classmethod
    def of(cls, config: ServerConfig) -> Budget:
        """Returns the budget for the current limit. Segments get the configured number, or half of the rest."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)
        others = min(OTHERS + OF_A_LOG_DIR * (len(config.log_dirs) - 1), limit // 2)
        return cls(limit, config.kwire_log_max_open_files or max((limit - others) // 2, 1), others)

    def open_files(self) -> OpenFiles:
        return OpenFiles(self.files)

    def connections(self, other_brokers: int = 0, fetchers: int = 1) -> int:
        """Returns the maximum number of clients' connections, with that many other brokers and num.replica.fetchers."""
        to_brokers = other_brokers * (OF_A_BROKER + fetchers - 1)
        return max(self.limit - self.files - self.others - to_brokers, LEAST_CONNECTIONS)


def raise_limit() -> None:
    """Raises the process's limit as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
