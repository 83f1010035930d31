"""How many files and connections the process may open, and how many of them are for segments of logs.

The operating system tells; a process may raise its own limit up to what the administrator allows it (`ulimit -Hn`).
"""

from __future__ import annotations

import resource
from contextlib import suppress

from kwire_storage.disk.open_files import OpenFiles

from kwire.config.server import ServerConfig

OTHERS = 64
"""Descriptors for all else: standard streams, listeners, folders, small files, what worker threads open."""

MOST = 1 << 20
"""More than this Linux gives to nobody (fs.nr_open), whatever the limit says."""


def raise_limit() -> None:
    """Raises the process's limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files(config: ServerConfig) -> OpenFiles:
    """As many as the configuration says, or half of what the limit leaves, the other half being for connections."""
    if config.kwire_log_max_open_files:
        return OpenFiles(config.kwire_log_max_open_files)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)
    return OpenFiles(max((limit - OTHERS) // 2, 1))
