"""A metadata log that can open nothing for a while: a refused change does not come with the next one."""

from __future__ import annotations

import errno
import os

import pytest
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.durability import Flush
from kwire_storage.log.log import Log

from kwire.metadata.log import METADATA_LOG_CONFIG, FileMetadataLog
from kwire.waits import at_once


def refuse(_object: object, _of: object = None) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


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
    assert [value for _, value in at_once(metadata.read(0)).records] == [b"first", b"second"]
