"""How many files and connections the process may open, and how its descriptors are shared out.

    files          segments of logs that are kept open, a cache (`OpenFiles`)
    others         what has to be there when it is needed: folders and small files that are synced, modules that are
                   imported, the cleaner's process, worker threads' files, connections to the other brokers
    connections    what clients get: all that is left. Above it they wait in the backlog

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
"""Standard streams, listeners, folders, small files, files of workers: of a broker with one log dir, and alone."""
OF_A_LOG_DIR = 2
OF_A_BROKER = 6
"""Connections to one other broker: `Peers` has five purposes, and there is one for each of num.replica.fetchers."""

LEAST_CONNECTIONS = 8
"""However few descriptors there are, so many connections are served."""

MOST = 1 << 20
"""Linux allows no process more than this (fs.nr_open), even if the limit is higher."""


@attrs.frozen
class Budget:
    """How the descriptors of the process are shared out; see the module."""

    limit: int
    """Of the operating system."""
    files: int
    others: int
    """Of a broker that is alone."""

    @classmethod
    def of(cls, config: ServerConfig) -> Budget:
        """By the limit as it is now. Segments get as many as are configured, or half of what the others leave."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)
        others = min(OTHERS + OF_A_LOG_DIR * (len(config.log_dirs) - 1), limit // 2)
        return cls(limit, config.kwire_log_max_open_files or max((limit - others) // 2, 1), others)

    def open_files(self) -> OpenFiles:
        return OpenFiles(self.files)

    def connections(self, other_brokers: int = 0, fetchers: int = 1) -> int:
        """How many clients may have, in a cluster with so many other brokers and num.replica.fetchers."""
        to_brokers = other_brokers * (OF_A_BROKER + fetchers - 1)
        return max(self.limit - self.files - self.others - to_brokers, LEAST_CONNECTIONS)


def raise_limit() -> None:
    """Raises the process's limit as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
