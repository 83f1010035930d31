"""How many files and connections the process may open, and how many of them are for log segments.

The operating system sets the limit; a process may raise its own up to the administrator's hard limit (`ulimit -Hn`).
"""

from __future__ import annotations

import resource
from contextlib import suppress

from kwire_storage.disk.open_files import OpenFiles

from kwire.config.server import ServerConfig

OTHERS = 64
"""Descriptors for everything else: standard streams, listeners, folders, small files, files of worker threads."""

MOST = 1 << 20
"""Linux allows no process more than this (fs.nr_open), even if the limit is higher."""


def raise_limit() -> None:
    """Raises the process's limit as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files(config: ServerConfig) -> OpenFiles:
    """The configured number, or half of what the limit leaves; the other half is for connections."""
    if config.kwire_log_max_open_files:
        return OpenFiles(config.kwire_log_max_open_files)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)
    return OpenFiles(max((limit - OTHERS) // 2, 1))
