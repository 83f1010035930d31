"""A `MetadataLog` in ZooKeeper, for the event loop. The blocking work is in `log_nodes.py` and `snapshot_nodes.py`, and
runs in worker threads, which get a `Keeper` and values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Self, TypeVar

import attrs

from kwire.cluster.zookeeper import log_nodes, snapshot_nodes
from kwire.cluster.zookeeper.keeper import Keeper, RefusedError, ZooKeeperError, create_if_missing, patiently
from kwire.metadata.log import AppendConflict, Watcher
from kwire.metadata.log_batches import ReadRecords
from kwire.metadata.snapshots import Snapshot
from kwire.runtime.loop import Loop
from kwire.runtime.workers import Worker

T = TypeVar("T")


@attrs.define(eq=False)
class ZooKeeperLog:
    """Create it with `open`.

    While the connection is lost, each method waits, and raises TimedOutError (an OSError) after the session time-out.
    An append whose answer is missing is looked up. If that was impossible for so long, TimedOutError reports its
    outcome as unknown; a later `read` shows it.
    """

    keeper: Keeper
    now_ms: Callable[[], int]
    new_id: Callable[[], bytes]
    """16 bytes that no other append and no other snapshot of the cluster has."""
    loop: Loop
    _end_offset: int
    _watchers: list[Watcher] = attrs.field(factory=list)

    @classmethod
    def open(
        cls, keeper: Keeper, now_ms: Callable[[], int], new_id: Callable[[], bytes], loop: Loop | None = None
    ) -> Self:
        """Creates the log if it does not exist. Blocks. Raises ZooKeeperError, CorruptLogError."""
        create_if_missing(keeper, log_nodes.ROOT)
        create_if_missing(keeper, log_nodes.LOG, log_nodes.Begin(0, 0).encode())
        create_if_missing(keeper, snapshot_nodes.SNAPSHOTS)
        return cls(keeper, now_ms, new_id, loop or Loop(), patiently(keeper, lambda: log_nodes.find_end(keeper)))

    @property
    def end_offset(self) -> int:
        return self._end_offset

    async def append(self, values: Sequence[bytes], *, expected_end_offset: int) -> None:
        if expected_end_offset != self._end_offset:
            # An offset where the log ended once is distinguishable from any other, and only there an append is
            # possible.
            await self.refresh()
        if expected_end_offset == self._end_offset:
            token, now_ms = self.new_id(), self.now_ms()
            if await self._in_worker(partial(_append, self.keeper, values, expected_end_offset, token, now_ms)):
                self.ends_at(expected_end_offset + len(values))
                return
            await self.refresh()
        raise AppendConflict(f"the metadata log ends at {self._end_offset}, not at {expected_end_offset}")

    async def read(self, offset: int) -> ReadRecords:
        found = await self._in_worker(partial(log_nodes.read, self.keeper, offset, self._end_offset))
        self.ends_at(found.next_offset)
        return found

    async def read_snapshot(self) -> Snapshot | None:
        return await self._in_worker(partial(snapshot_nodes.read_snapshot, self.keeper))

    async def write_snapshot(self, values: Sequence[bytes], *, end_offset: int) -> None:
        token, now_ms = self.new_id(), self.now_ms()
        await self._in_worker(partial(snapshot_nodes.write_snapshot, self.keeper, values, end_offset, token, now_ms))

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    async def refresh(self) -> None:
        """Finds the new end after appends of other nodes. Raises OSError, CorruptLogError."""
        follow = partial(log_nodes.follow, self.keeper, self._end_offset)
        self.ends_at(await self._in_worker(partial(patiently, self.keeper, follow)))

    def ends_at(self, end_offset: int) -> None:
        """Sets the end offset that `log_nodes.follow` has found."""
        if end_offset > self._end_offset:
            self._end_offset = end_offset
            self.notify_watchers()

    def notify_watchers(self) -> None:
        """Calls the watchers; also when a lost connection is back, because a read may have failed meanwhile."""
        for watcher in self._watchers:
            watcher()

    async def _in_worker(self, work: Callable[[], T]) -> T:
        try:
            return (await self.loop.in_worker(Worker.ZOOKEEPER, work)).unwrap()
        except RefusedError as error:
            raise ZooKeeperError(f"a node that the metadata log needs in ZooKeeper is gone: {error}") from error


def _append(keeper: Keeper, values: Sequence[bytes], offset: int, token: bytes, now_ms: int) -> bool:
    nodes = log_nodes.append_nodes(values, offset, token, now_ms)
    return log_nodes.append(keeper, nodes, offset, token)
