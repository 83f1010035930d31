"""A metadata log in memory that is far away and shared: its answers come late, and others append in between."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import attrs
from kwire_protocol.internal.metadata_log import NoOpRecord

from kwire.metadata.log import AppendConflict, Watcher
from kwire.metadata.log_batches import ReadRecords
from kwire.metadata.records import MetadataRecord, encode_record
from kwire.metadata.snapshots import Snapshot
from kwire.runtime.futures import Future

T = TypeVar("T")

NEWS: Final[deque[Callable[[], None]]] = deque()
"""The deliveries in flight; `answered` lets them arrive, in order."""


@attrs.define(eq=False)
class DistantLog:
    """`is_slow`: an append or a read is only done when `NEWS` has arrived. `others` is called before each append is."""

    values: list[bytes] = attrs.field(factory=list)
    is_slow: bool = False
    others: Callable[[], None] = lambda: None
    refuses: OSError | None = None
    """The error of each append."""
    is_unreadable: bool = False
    snapshot: Snapshot | None = None
    appends: int = 0
    """The number of delivered requests, including those without effect."""
    _ends: list[int] = attrs.field(factory=list)
    """The end offset of each append."""
    _watchers: list[Watcher] = attrs.field(factory=list)

    @property
    def end_offset(self) -> int:
        return len(self.values)

    async def append(self, values: Sequence[bytes], *, expected_end_offset: int) -> None:
        await self._arrival()
        self.appends += 1
        self.others()
        if self.refuses is not None:
            raise self.refuses
        if expected_end_offset != self.end_offset:
            raise AppendConflict
        self.append_as_other(*values)
        await self._arrival()

    async def read(self, offset: int) -> ReadRecords:
        await self._arrival()
        if self.is_unreadable:
            raise OSError(errno.EIO, "the connection is lost")
        end = next((it for it in self._ends if it > offset), offset)
        found = [(it, self.values[it]) for it in range(offset, end)]
        return ReadRecords(found, end, sum(len(value) for _, value in found))

    async def read_snapshot(self) -> Snapshot | None:
        return self.snapshot

    async def write_snapshot(self, values: Sequence[bytes], *, end_offset: int) -> None:
        await self._arrival()
        self.snapshot = Snapshot(end_offset, values)

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def append_as_other(self, *values: bytes) -> None:
        self._append(values)
        for watcher in self._watchers:
            watcher()

    def record_as_other(self, *records: MetadataRecord) -> None:
        self.append_as_other(*map(encode_record, records))

    def record_without_news(self, *records: MetadataRecord) -> None:
        """Appends as another writer, whose news has not arrived yet."""
        self._append([encode_record(it) for it in records])

    def _append(self, values: Sequence[bytes]) -> None:
        self.values += values
        self._ends.append(self.end_offset)

    async def _arrival(self) -> None:
        if self.is_slow:
            future: Future[None] = Future()
            NEWS.append(lambda: future.set(None))
            await future


def other_writer_first(log: DistantLog) -> Callable[[], None]:
    """Returns a value for `others`: another writer appends before every second append."""

    def append() -> None:
        if log.appends % 2:
            log.record_as_other(NoOpRecord())

    return append


def answered(coroutine: Coroutine[Future[Any], None, T]) -> T:
    """Returns the result of the coroutine, and delivers news as long as it waits."""
    while True:
        try:
            future = coroutine.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        while not future.is_set:
            NEWS.popleft()()


def settle() -> None:
    """Lets all news arrive."""
    while NEWS:
        NEWS.popleft()()
