"""Races that are put into the broker on purpose, to check that a run finds them.

Each is a mistake that one could make in code that runs in parallel to the event loop. The text next to each describes
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kwire_storage import names
from kwire_storage.checkpoints import TopicPartition
from kwire_storage.compaction.planning import Compaction
from kwire_storage.directory.moving import LogMove
from kwire_storage.directory.offset_checkpoints import OffsetCheckpoints
from kwire_storage.disk.files import Disk
from kwire_storage.log.environment import DeletedFiles, LogEnvironment
from kwire_storage.log.log import Log
from kwire_storage.log.swap_files import rename_if_there

from kwire.replicas.flush_gate import FlushGate
from kwire.replicas.flusher import Flusher
from testkit.mutants.processes import Mistake


async def _flush_at_once(self: Flusher, gate: FlushGate) -> None:
    await self._flush_once(gate)


def _leave_to_the_clock(self: OffsetCheckpoints, key: TopicPartition) -> None: ...


def _finish_without_the_rest(
    self: LogMove,
    *,
    max_bytes: int,
    unique: bytes,
    now_ms: int,
) -> Log:
    source, copy = self.source, self.copy
    copy.producer_state.adopt(source.producers)
    copy.close(clean=True)
    copy.give_up_folder()
    self.source_folder.delete_log(*self.key, unique)
    path = self.target_folder.futures.pop(self.key)
    self.target_folder.take_in(self.key, path)
    log = self.target_folder.open_log(*self.key, source.config, now_ms=now_ms, is_clean=True)
    log.cleaned_offset = source.cleaned_offset
    return log


def _begin_unchecked(log: Log, compaction: Compaction) -> None:
    log.is_exchanging = True


def _replace_unchecked(log: Log, compaction: Compaction, now_ms: int) -> Iterator[None]:
    for group in compaction.groups:
        group.cleaned.file_suffix = names.LOG + names.SWAP
        log.replace_segments(group.segments, group.cleaned, now_ms)
        for suffix in names.SEGMENT_SUFFIXES[1:]:
            rename_if_there(log.disk, group.path + suffix + names.SWAP, group.path + suffix)
        yield


def _delete_without_renaming(self: LogEnvironment, disk: Disk, paths: Iterable[str], due_ms: int) -> None:
    self.deleted.append(DeletedFiles(due_ms, list(paths)))


RACES = {
    it.name: it
    for it in (
        Mistake(
            "two-flushes",
            "the cleaner has a log flushed while the flush that a roll asked for is under way",
            {"kwire.replicas.flusher:Flusher.flush": _flush_at_once},
        ),
        Mistake(
            "stale-checkpoint",
            "what a checkpoint says of a deleted topic is left to the clock, though another topic has its name by then",
            {"kwire_storage.directory.offset_checkpoints:OffsetCheckpoints.write_files_with": _leave_to_the_clock},
        ),
        Mistake(
            "move-without-the-rest",
            "a copy takes the place of its log without what was appended since they were last compared",
            {"kwire_storage.directory.moving:LogMove.finish": _finish_without_the_rest},
        ),
        Mistake(
            "swap-of-what-is-gone",
            "a cleaning does not ask whether retention has deleted meanwhile what it has cleaned",
            {
                "kwire_storage.compaction.swap:begin": _begin_unchecked,
                "kwire_storage.compaction.swap:replace": _replace_unchecked,
            },
        ),
        Mistake(
            "removal-by-the-old-name",
            "a deleted segment's files keep their names until they are removed, when others may have these names",
            {"kwire_storage.log.environment:LogEnvironment.delete_later": _delete_without_renaming},
        ),
    )
}
