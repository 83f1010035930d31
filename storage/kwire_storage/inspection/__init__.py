"""Checks and repairs logs from outside: `kwire log check` and `kwire log repair`.

    layout.py            the contents of a partition's folder, by their names
    walk.py              every batch of a .log file, and the ranges where no good batch is
    sparse_indexes.py    .index and .timeindex compared with their batches
    producers_check.py   .snapshot and .txnindex compared with the batches
    content_check.py     the records of a batch compared with its header
    partition_check.py   one folder: the walk, which feeds all of these
    log_dir_check.py      a log dir: its partitions, checkpoints and small files
    findings.py          the kinds of damage, their severity and remedy
    rebuild.py           rebuilds derived files from the batches
    repair.py            turns findings into steps, each with a copy of the bytes that it removes

A check opens files for reading only and takes no lock, so it can run on a folder that a broker uses. It holds one batch
and the derived data of one segment at a time, so a log of any size is checked in bounded memory.
"""

from __future__ import annotations

from kwire_storage.inspection.findings import Finding, Kind, Remedy, Severity
from kwire_storage.inspection.log_dir_check import check_folder, read_state
from kwire_storage.inspection.partition_check import PartitionContext, TopicFacts, check_partition
from kwire_storage.log.walk import Batch, Damage, walk

__all__ = [
    "Batch",
    "Damage",
    "Finding",
    "Kind",
    "PartitionContext",
    "Remedy",
    "Severity",
    "TopicFacts",
    "check_folder",
    "check_partition",
    "read_state",
    "walk",
]
