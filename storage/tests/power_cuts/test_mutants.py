"""The power-cut test notices mistakes: each of these, made on purpose, breaks a promise in some state of a trace."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_storage import names
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.medium import Change, Write
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log import durability
from kwire_storage.log.log import Log

from testkit.mutants import changes
from testkit.mutants.changes import Function, Mutant, always, at_large, instead, without
from testkit.worlds.power_cuts.caught import expect_caught, expect_made
from testkit.worlds.power_cuts.storage_traces import storage_trace

SYNC = "kwire_storage.disk.faulty_disk:FaultyFile.sync"
SYNC_DIR = "kwire_storage.disk.memory_disk:MemoryDisk.sync_dir"
SYNC_DIR_OF_LOG = "kwire_storage.disk.lease:Lease.sync_dir"
SYNC_OPEN_FOLDER = "kwire_storage.disk.memory_disk:OpenMemoryFolder.sync"
REPLACE_FILE = "kwire_storage.disk.files:replace_file"
WRITE_ATOMIC = "kwire_storage.disk.files:WholeFiles.write_atomic"
SETTLE_NAMES = "kwire_storage.log.durability:Durability.settle_names"
HAS_HOLES = "kwire_storage.log.segment:Segment.has_holes"
RECOVER = "kwire_storage.log.recovery:LogRecovery.run"
LOAD = "kwire_storage.log.loading:LogLoader.load"
ROLL = "kwire_storage.log.log:Log.roll"
NEVER = 1 << 62
"""An offset that no log reaches."""


def overwritten(_rename: Function) -> Function:
    def mistaken(disk: MemoryDisk, old: str, new: str) -> None:
        content, file = disk.read_bytes(old), disk.open_append(new)
        file.truncate(0)
        file.append(content)

    return mistaken


def names_taken_for_synced(load: Function) -> Function:
    def mistaken(loader: Any) -> Any:
        parts = load(loader)
        if not loader.clean_shutdown:
            parts.durability.folder_unsynced = False
            parts.durability.name_changes -= 1
        return parts

    return mistaken


def with_cleaner_checkpoint(take: Function) -> Function:
    def mistaken(checkpoints: Any, key: Any, log: Any, least: int) -> Any:
        taken = take(checkpoints, key, log, least)
        if taken:
            checkpoints.cleaned[key] = least
            taken = dict(checkpoints._all)
        return taken

    return mistaken


MUTANTS = [
    Mutant(
        "a flush does not sync the records",
        "flush each append",
        instead(
            "kwire_storage.log.durability:Flush.records", always(()), seen_by="kwire_storage.log.durability:Flush.run"
        ),
    ),
    Mutant(
        "a flush does not sync indexes and snapshots",
        "roll",
        instead(
            "kwire_storage.log.durability:Flush.files", always(()), seen_by="kwire_storage.log.durability:Flush.run"
        ),
    ),
    Mutant(
        "a flush does not sync names",
        "flush each append",
        instead(
            "kwire_storage.log.durability:Flush.folders", always(()), seen_by="kwire_storage.log.durability:Flush.run"
        ),
    ),
    Mutant(
        "a flush does not sync the name of the partition's folder",
        "flush each append",
        instead(
            "kwire_storage.log.durability:Durability.folder_unsynced",
            always(False),
            seen_by="kwire_storage.log.durability:Durability.begin_flush",
        ),
    ),
    Mutant(
        "a flush covers the active segment only",
        "roll",
        instead(
            "kwire_storage.log.log_segments:LogSegments.from_offset",
            lambda from_offset: lambda segments, _offset: from_offset(segments, segments.end_offset),
            seen_by="kwire_storage.log.durability:Durability.begin_flush",
        ),
    ),
    Mutant(
        "the recovery point is written before the data is synced",
        "transactions",
        instead(
            "kwire_storage.log.log:Log.recovery_point",
            lambda _: lambda log: log.log_end_offset,
            seen_by="kwire_storage.directory.offset_checkpoints:OffsetCheckpoints.take",
        ),
    ),
    Mutant(
        "a file is replaced before its new content is synced",
        "stop and start",
        without(REPLACE_FILE, SYNC),
    ),
    Mutant(
        "a file is replaced and the rename not synced",
        "delete records",
        without(WRITE_ATOMIC, SYNC_DIR),
    ),
    Mutant(
        "a file is overwritten instead of replaced",
        "stop and start",
        instead("kwire_storage.disk.memory_disk:MemoryDisk.rename", overwritten, seen_by=REPLACE_FILE),
    ),
    Mutant(
        "a truncation is not synced",
        "truncate",
        without("kwire_storage.log.segment:Segment.cut", SYNC),
    ),
    Mutant(
        "the segments that a truncation removes are not gone for good",
        "truncate",
        without("kwire_storage.log.log_segments:LogSegments._delete_newest", SYNC_OPEN_FOLDER),
    ),
    Mutant(
        "the next offset of an emptied log is not on the medium",
        "truncate fully",
        without("kwire_storage.log.log:Log.create_file", SETTLE_NAMES),
    ),
    Mutant(
        "the mark of a clean stop is not removed",
        "stop and start",
        instead(
            "kwire_storage.disk.memory_disk:MemoryDisk.remove",
            lambda remove: lambda disk, path: None if path == names.CLEAN_SHUTDOWN else remove(disk, path),
            seen_by="kwire_storage.directory.log_dir:LogDir.open",
        ),
    ),
    Mutant(
        "the mark of a clean stop may come back",
        "stop and start",
        without("kwire_storage.directory.log_dir:LogDir.open", SYNC_DIR),
    ),
    Mutant(
        "a recovery cuts a byte too late",
        "produce",
        instead(
            "kwire_storage.disk.faulty_disk:FaultyFile.truncate",
            lambda truncate: lambda file, size: truncate(file, size + 1),
            seen_by="kwire_storage.log.recovery:LogRecovery._cut",
        ),
    ),
    Mutant(
        "a recovery keeps what follows a loss",
        "produce",
        instead(
            "kwire_storage.log.log_segments:LogSegments.delete_newest",
            lambda delete: lambda segments, _count, now_ms: delete(segments, 0, now_ms),
            seen_by=RECOVER,
        ),
    ),
    Mutant(
        "a recovery does not miss what a segment lost at its end",
        "roll",
        instead(HAS_HOLES, always(True), seen_by=RECOVER),
    ),
    Mutant(
        "a recovery trusts the indexes beyond the recovery point",
        "roll",
        without(
            "kwire_storage.log.recovery:LogRecovery._recover_segment", "kwire_storage.log.segment:Segment.begin_rebuild"
        ),
    ),
    Mutant(
        "a recovery does not look at checksums",
        "produce large batches",
        without("kwire_storage.log.walk:_Walker.batch_at", "kwire_storage.log.walk:check_batch"),
    ),
    Mutant(
        "a roll at the recovery point leaves the indexes to the next flush",
        "roll",
        without(ROLL, "kwire_storage.log.durability:Durability.settle_files"),
    ),
    Mutant(
        "a recovery keeps the epochs of what is lost",
        "truncate",
        without(RECOVER, "kwire_storage.log.epochs:EpochCache.truncate_from_end"),
    ),
    Mutant(
        "a snapshot of a lost future is believed",
        "produce",
        instead(
            "kwire_storage.log.log_segments:LogSegments.end_offset",
            always(NEVER),
            seen_by="kwire_storage.producers.state_manager:ProducerStateManager.load",
        ),
    ),
    Mutant(
        "a snapshot of a lost future is kept",
        "stop and start",
        instead("kwire_storage.producers.state_manager:ProducerStateManager.drop_snapshots_above", always(None)),
    ),
    Mutant(
        "snapshots without segments tell where a log ends",
        "stop and start",
        without(LOAD, "kwire_storage.producers.state_manager:ProducerStateManager.drop_snapshots_above"),
    ),
    Mutant(
        "what a process that died had not synced is taken for synced",
        "die and start",
        instead(LOAD, names_taken_for_synced),
    ),
    Mutant(
        "the second segment's name may be there without the first one's",
        "produce",
        without(ROLL, SETTLE_NAMES),
    ),
    Mutant(
        "a segment's name may go before its forerunner's",
        "delete records",
        without("kwire_storage.log.log:Log._delete_oldest", SETTLE_NAMES),
    ),
    Mutant(
        "compacted records take the place of others before they are synced",
        "compact",
        without("kwire_storage.compaction.writing:_Writing._clean", SYNC),
    ),
    Mutant(
        "old segments go before it is decided that others take their place",
        "compact",
        without("kwire_storage.compaction.swap:commit", SYNC_DIR_OF_LOG),
    ),
    Mutant(
        "a compacted segment gets its name before the old ones are gone for good",
        "compact",
        without("kwire_storage.compaction.swap:sync", SYNC_DIR_OF_LOG),
    ),
    Mutant(
        "the cleaner's checkpoint is written before the swap",
        "compact",
        instead(
            "kwire_storage.directory.offset_checkpoints:OffsetCheckpoints.take_before_cleaning", with_cleaner_checkpoint
        ),
    ),
    Mutant(
        "the recovery point is not in its file before the swap",
        "compact",
        instead("kwire_storage.directory.offset_checkpoints:OffsetCheckpoints.take_before_cleaning", always({})),
    ),
    Mutant(
        "a transaction is taken for decided by a marker that is not flushed",
        "compact transactions",
        instead(
            "kwire_storage.log.log:Log.recovery_point",
            always(NEVER),
            seen_by="kwire_storage.compaction.planning:cleanable_end",
        ),
    ),
    Mutant(
        "a recovery takes a loss for the work of compaction",
        "compact",
        instead(HAS_HOLES, always(True), seen_by=RECOVER),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_made(mutant: Mutant) -> None:
    expect_made(storage_trace, mutant)


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_caught(mutant: Mutant) -> None:
    with at_large(mutant.change):
        expect_caught(storage_trace, mutant.trace)


@pytest.mark.soak
def test_an_acknowledgement_before_the_append_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends to a log are written only when something else is, as by a buffer in the process."""
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


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (without(ROLL, "kwire_storage.log.durability:gone"), "there is no kwire_storage.log.durability:gone"),
        (without("kwire_storage.log.rolling:gone", SETTLE_NAMES), "there is no kwire_storage.log.rolling:gone"),
        (without(ROLL, "kwire_storage.log.log:Log.gone"), "there is no kwire_storage.log.log:Log.gone"),
        (without(ROLL, "kwire_storage.log.log:Log.truncate_to"), "log:Log.roll makes no use of 'truncate_to'"),
    ],
)
def test_a_mistake_that_has_lost_its_place_is_reported(change: changes.Change, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint), at_large(change):
        pass


def test_a_mistake_is_undone() -> None:
    function, attribute = durability.sync_path, vars(Log).get("recovery_point")
    with (
        at_large(without("kwire_storage.log.durability:Flush.run", "kwire_storage.log.durability:sync_path")),
        at_large(instead("kwire_storage.log.log:Log.recovery_point", always(0))),
    ):
        assert durability.sync_path is not function
        assert vars(Log).get("recovery_point") is not attribute
    assert durability.sync_path is function
    assert vars(Log).get("recovery_point") is attribute
