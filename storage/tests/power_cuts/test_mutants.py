"""The power-cut test notices mistakes: each of these, made on purpose, breaks a promise in some state of a trace."""

from __future__ import annotations

import pytest
from kwire_storage.faulty_disk import FaultyDisk
from kwire_storage.medium import Change, Write

from storage.tests.power_cuts.mutants import Mutant, at_large, expect_caught
from storage.tests.power_cuts.storage_traces import storage_trace

MUTANTS = [
    Mutant(
        "a flush does not sync the records",
        "flush each append",
        "kwire_storage.durability:Flush.run",
        "(*self.records, *self.files)",
        "self.files",
    ),
    Mutant(
        "a flush does not sync indexes and snapshots",
        "roll",
        "kwire_storage.durability:Flush.run",
        "(*self.records, *self.files)",
        "self.records",
    ),
    Mutant(
        "a flush does not sync names",
        "flush each append",
        "kwire_storage.durability:Flush.run",
        "for path in self.folders:",
        "for path in ():",
    ),
    Mutant(
        "a flush does not sync the name of the partition's folder",
        "flush each append",
        "kwire_storage.durability:begin_flush",
        "if log.folder_unsynced:",
        "if False:",
    ),
    Mutant(
        "a flush covers the active segment only",
        "roll",
        "kwire_storage.durability:begin_flush",
        "log.segments_from(log.recovery_point)",
        "log.segments_from(log.log_end_offset)",
    ),
    Mutant(
        "the recovery point is written before the data is synced",
        "transactions",
        "kwire_storage.offset_checkpoints:OffsetCheckpoints.take",
        "log.recovery_point",
        "log.log_end_offset",
    ),
    Mutant(
        "a file is replaced before its new content is synced",
        "stop and start",
        "kwire_storage.memory_disk:MemoryDisk.write_atomic",
        "self.open_read(temporary).sync()",
        "pass",
    ),
    Mutant(
        "a file is replaced and the rename not synced",
        "delete records",
        "kwire_storage.memory_disk:MemoryDisk.write_atomic",
        "self.sync_dir(split_path(path)[0])",
        "pass",
    ),
    Mutant(
        "a file is overwritten instead of replaced",
        "stop and start",
        "kwire_storage.memory_disk:MemoryDisk.write_atomic",
        "self.rename(temporary, path)",
        "self.write_bytes(path, data)",
    ),
    Mutant(
        "a truncation is not synced",
        "truncate",
        "kwire_storage.segment:Segment.cut",
        "file.sync()",
        "pass",
    ),
    Mutant(
        "the segments that a truncation removes are not gone for good",
        "truncate",
        "kwire_storage.truncation:delete_newest",
        "if count:",
        "if False:",
    ),
    Mutant(
        "where an emptied log goes on is not on the medium",
        "truncate fully",
        "kwire_storage.truncation:truncate_fully",
        "durability.settle_names(log)",
        "pass",
    ),
    Mutant(
        "the mark of a clean stop is not removed",
        "stop and start",
        "kwire_storage.data_folder:DataFolder.open",
        "disk.remove(names.CLEAN_SHUTDOWN)",
        "pass",
    ),
    Mutant(
        "the mark of a clean stop may come back",
        "stop and start",
        "kwire_storage.data_folder:DataFolder.open",
        'disk.sync_dir("")',
        "pass",
    ),
    Mutant(
        "a recovery cuts a byte too late",
        "produce",
        "kwire_storage.recovery:_cut",
        "file.truncate(start)",
        "file.truncate(start + 1)",
    ),
    Mutant(
        "a recovery keeps what follows a loss",
        "produce",
        "kwire_storage.recovery:recover",
        "deleted = len(log.segments) - number - 1",
        "deleted = 0",
    ),
    Mutant(
        "a recovery does not miss what a segment lost at its end",
        "roll",
        "kwire_storage.recovery:recover",
        "elif forerunner",
        "elif False and forerunner",
    ),
    Mutant(
        "a recovery trusts the indexes beyond the recovery point",
        "roll",
        "kwire_storage.recovery:_recover_segment",
        "segment.begin_rebuild()",
        "pass",
    ),
    Mutant(
        "a recovery does not look at checksums",
        "produce large batches",
        "kwire_storage.walk:_Walker.batch_at",
        "check_batch(data, header)",
        "pass",
    ),
    Mutant(
        "a roll at the recovery point leaves the indexes to the next flush",
        "roll",
        "kwire_storage.rolling:roll",
        "end == log.recovery_point",
        "False",
    ),
    Mutant(
        "a recovery keeps the epochs of what is lost",
        "truncate",
        "kwire_storage.recovery:recover",
        "log.leader_epochs.truncate_from_end(log.log_end_offset)",
        "pass",
    ),
    Mutant(
        "a snapshot of a lost future is believed",
        "produce",
        "kwire_storage.replay:load_producers",
        "if offset <= log.log_end_offset",
        "if True",
    ),
    Mutant(
        "a snapshot of a lost future is kept",
        "stop and start",
        "kwire_storage.durability:drop_snapshots_above",
        "if offset > end_offset",
        "if False",
    ),
    Mutant(
        "snapshots without segments tell where a log ends",
        "stop and start",
        "kwire_storage.opening:load",
        "if not (clean_shutdown or bases):",
        "if False:",
    ),
    Mutant(
        "what a process that died had not synced is taken for synced",
        "die and start",
        "kwire_storage.opening:load",
        "if not clean_shutdown:",
        "if False:",
    ),
    Mutant(
        "the second segment's name may be there without the first one's",
        "produce",
        "kwire_storage.rolling:roll",
        "if len(log.segments) == 1:",
        "if False:",
    ),
    Mutant(
        "a segment's name may go before its forerunner's",
        "delete records",
        "kwire_storage.retention:delete_oldest",
        "durability.settle_names(log)",
        "pass",
    ),
    Mutant(
        "compacted records take the place of others before they are synced",
        "compact",
        "kwire_storage.compaction:Compaction._clean",
        "file.sync()",
        "pass",
    ),
    Mutant(
        "old segments go before it is decided that others take their place",
        "compact",
        "kwire_storage.swap:commit",
        "compaction.disk.sync_dir(compaction.path)",
        "pass",
    ),
    Mutant(
        "a compacted segment gets its name before the old ones are gone for good",
        "compact",
        "kwire_storage.swap:sync",
        "compaction.disk.sync_dir(compaction.path)",
        "pass",
    ),
    Mutant(
        "the cleaner's checkpoint is written before the swap",
        "compact",
        "kwire_storage.offset_checkpoints:OffsetCheckpoints.take_recovery_point",
        "return {names.RECOVERY_POINT_CHECKPOINT: dict(self.recovery_points)}",
        "self.cleaned[key] = least; return dict(self._all)",
    ),
    Mutant(
        "the recovery point is not in its file before the swap",
        "compact",
        "kwire_storage.offset_checkpoints:OffsetCheckpoints.take_recovery_point",
        ">= least",
        ">= 0",
    ),
    Mutant(
        "a transaction is taken for decided by a marker that is not flushed",
        "compact transactions",
        "kwire_storage.compaction:cleanable_end",
        "min(high_watermark, log.recovery_point)",
        "high_watermark",
    ),
    Mutant(
        "a recovery takes a loss for the work of compaction",
        "compact",
        "kwire_storage.recovery:recover",
        "elif forerunner",
        "elif not log.config.compacts and forerunner",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_caught(mutant: Mutant) -> None:
    with at_large(mutant):
        expect_caught(storage_trace, mutant.trace)


def test_an_acknowledgement_before_the_append_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was appended to a log is written only when something else is, as a buffer in the process would have it."""
    note = FaultyDisk.note
    waiting: list[tuple[Change, str]] = []

    def late(disk: FaultyDisk, change: Change, what: str) -> None:
        held, waiting[:] = list(waiting), []
        if isinstance(change, Write) and what.endswith(".log"):
            waiting.append((change, what))
        else:
            for before in held:
                note(disk, *before)
            note(disk, change, what)
            held = []
        for before in held:
            note(disk, *before)

    monkeypatch.setattr(FaultyDisk, "note", late)
    assert "was promised" in str(expect_caught(storage_trace, "produce"))
