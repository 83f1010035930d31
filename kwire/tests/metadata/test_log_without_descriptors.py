"""A metadata log that cannot open files for a while: its readers and its writer agree on what it has."""

from __future__ import annotations

import errno
import os

import pytest
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.durability import Flush
from kwire_storage.log.log import Log

from kwire.cluster.local.metadata_log import SharedMetadataLog
from kwire.metadata.log import METADATA_LOG_CONFIG, AppendConflict, FileMetadataLog, MetadataLog
from kwire.runtime.futures import at_once


def refuse(_object: object, _of: object = None) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def values_of(metadata: MetadataLog) -> list[bytes]:
    return [bytes(value) for _, value in at_once(metadata.read(0)).records]


def test_a_change_that_was_refused_and_could_not_be_taken_back_does_not_come_with_the_next_one() -> None:
    disk = MemoryDisk()
    log = Log.open(disk, "__cluster_metadata-0", METADATA_LOG_CONFIG, now_ms=0, clean_shutdown=True)
    metadata = FileMetadataLog(log, 1, lambda: 0)
    at_once(metadata.append([b"first"], expected_end_offset=0))
    end = metadata.end_offset
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Flush, "run", refuse)
        patched.setattr(Log, "truncate_to", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            at_once(metadata.append([b"refused"], expected_end_offset=end))
    assert log.failed is None
    at_once(metadata.append([b"second"], expected_end_offset=end))
    assert values_of(metadata) == [b"first", b"second"]


def test_a_change_of_a_shared_log_that_could_not_be_taken_back_is_a_change_that_all_find() -> None:
    disk = MemoryDisk()
    announced: list[str] = []
    ours, theirs = (SharedMetadataLog.open(disk, node_id, lambda: 0) for node_id in (1, 2))
    ours.announce = lambda: announced.append("news")
    at_once(ours.append([b"first"], expected_end_offset=0))
    end = ours.end_offset
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Flush, "run", refuse)
        patched.setattr(Log, "truncate_to", refuse)
        with pytest.raises(AppendConflict, match="ends at 3, not at 2"):
            at_once(ours.append([b"left"], expected_end_offset=end))
        # It cannot be read before it is synced.
        for metadata in (ours, theirs):
            with pytest.raises(OSError, match="Too many open files"):
                at_once(metadata.read(0))
    assert announced == ["news", "news"]
    assert values_of(theirs) == values_of(ours) == [b"first", b"left"]
    at_once(ours.append([b"second"], expected_end_offset=ours.end_offset))
    assert values_of(theirs) == [b"first", b"left", b"second"]


def test_a_change_of_a_shared_log_that_could_be_taken_back_is_found_by_no_node() -> None:
    disk = MemoryDisk()
    ours, theirs = (SharedMetadataLog.open(disk, node_id, lambda: 0) for node_id in (1, 2))
    at_once(ours.append([b"first"], expected_end_offset=0))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Flush, "run", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            at_once(ours.append([b"refused"], expected_end_offset=ours.end_offset))
    assert values_of(theirs) == values_of(ours) == [b"first"]


def test_a_change_of_a_shared_log_is_done_although_the_files_cannot_be_listed_afterwards() -> None:
    disk = MemoryDisk()
    ours, theirs = (SharedMetadataLog.open(disk, node_id, lambda: 0) for node_id in (1, 2))
    at_once(ours.append([b"first"], expected_end_offset=0))
    flush = Flush.run

    def and_refuse(it: Flush) -> None:
        flush(it)
        disk.before_open = refuse

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Flush, "run", and_refuse)
        at_once(ours.append([b"second"], expected_end_offset=ours.end_offset))
    disk.before_open = None
    assert values_of(theirs) == values_of(ours) == [b"first", b"second"]
