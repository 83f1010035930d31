"""Notifies the processes of a machine of new records: a datagram socket for each node, in a folder.

A datagram has no further content. One that finds a full queue is not needed, because an unread one is in it; and a node
reads the log after it has opened its socket, so it misses nothing. No node polls.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kwire_storage.errors import StorageError

SUFFIX: Final = ".sock"
MOST_AT_ONCE: Final = 4096
LONGEST_PATH_BYTES: Final = 107 if os.uname().sysname == "Linux" else 103
"""The length of sun_path, without the terminating zero."""


class News:
    """The socket of one node, in `folder`, which exists. `sock` can be read when there is news; then call `take`."""

    def __init__(self, folder: str, node_id: int) -> None:
        """Binds the socket. Only one process may have a node's socket: the holder of its lock. Raises StorageError."""
        self._folder = Path(folder)
        self._own = self._folder / f"{node_id}{SUFFIX}"
        if len(os.fsencode(self._own)) > LONGEST_PATH_BYTES:
            raise StorageError(
                errno.ENAMETOOLONG,
                f"the path of a socket has at most {LONGEST_PATH_BYTES} bytes: choose a shorter kwire.cluster.dir",
                str(self._own),
            )
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self.sock.setblocking(False)
            self._own.unlink(missing_ok=True)  # of a process that was killed
            self.sock.bind(str(self._own))
        except OSError as error:
            self.sock.close()
            raise StorageError.of(error, str(self._own)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()
        self._own.unlink(missing_ok=True)

    def notify(self) -> None:
        """Notifies all other nodes. One that has died, or does not listen any more, is skipped."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            if path != self._own:
                # Refused or absent: it has died. Would block: it has not read an earlier datagram. In any case the
                # records are appended, so their writer must not get an error.
                with suppress(OSError):
                    self.sock.sendto(b"!", str(path))

    def take(self) -> None:
        """Receives all datagrams that have arrived."""
        with suppress(BlockingIOError):
            while True:
                self.sock.recv(MOST_AT_ONCE)
