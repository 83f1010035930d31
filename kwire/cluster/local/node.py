"""This process as one node of a machine's cluster: its life, its news, and the log that all nodes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import attrs
from kwire_storage.disk.files import RealDisk

from kwire.beside import Beside
from kwire.cluster.local.lives import FOLDER, Life, live
from kwire.cluster.local.metadata_log import SharedMetadataLog
from kwire.cluster.local.news import News

if TYPE_CHECKING:
    import socket


@attrs.define(eq=False)
class LocalNode:
    """Join with `join`, and `leave` at the end; a process that is killed leaves as well.

    When `sock` can be read, call `hear`, and then `log.look`.
    """

    node_id: int
    log: SharedMetadataLog
    _life: Life
    _news: News

    @classmethod
    def join(cls, folder: str, node_id: int, now_ms: Callable[[], int], beside: Beside | None = None) -> Self:
        """`folder` is made if it is not there. Raises NodeIdTakenError, StorageError, CorruptLogError."""
        disk = RealDisk(folder)
        disk.mkdir("")
        life = live(disk, node_id)
        try:
            # The socket first: what is appended after the log was opened is heard of.
            news = News(f"{folder}/{FOLDER}", node_id)
            try:
                log = SharedMetadataLog.open(disk, node_id, now_ms, beside)
            except BaseException:
                news.close()
                raise
        except BaseException:
            life.release()
            raise
        log.announce = news.tell
        return cls(node_id, log, life, news)

    @property
    def sock(self) -> socket.socket:
        return self._news.sock

    def hear(self) -> None:
        """Takes the news; all that they say is that there are new records."""
        self._news.take()

    def leave(self) -> None:
        self._news.close()
        self._life.release()
