"""A partition's log as a log with segments, for tests that read its files or roll it; and a read of it."""

from __future__ import annotations

from kwire_storage.log.log import Log, LogSlice

from kwire.replicas.partition import Partition
from kwire.replicas.partition_log import LogRead


def log_files(partition: Partition) -> Log:
    assert isinstance(partition.log, Log)
    return partition.log


def at_hand(read: LogRead) -> LogSlice:
    """The result of a `Partition.read`, for which a log with segments never has to wait."""
    assert isinstance(read, LogSlice)
    return read
