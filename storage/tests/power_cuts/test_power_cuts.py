"""The power fails after every change of every trace, and the process dies there; what is left must hold."""

from __future__ import annotations

import pytest
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.names import RECOVERY_POINT_CHECKPOINT

from devtools.suite.tiers import small_and_full
from testkit.worlds.power_cuts.storage_trace import open_folder
from testkit.worlds.power_cuts.storage_traces import STORAGE_TRACES, bounds_of, storage_trace
from testkit.worlds.power_cuts.sweep import sweep


@small_and_full
@pytest.mark.parametrize("name", STORAGE_TRACES)
def test_whatever_a_crash_leaves_holds(name: str, *, full: bool) -> None:
    sweep(storage_trace(name), bounds_of(name, full=full))


def test_a_recovery_point_beyond_the_end_of_a_log_does_not_stay_in_its_file() -> None:
    trace = storage_trace("flush each append")
    disk = FaultyDisk()
    trace.run(disk)
    disk = disk.kill()
    before = int(disk.read_bytes(RECOVERY_POINT_CHECKPOINT).split()[-1])
    disk.remove(f"t-0/{trace.log().segments.bases[-1]:020d}.log")
    log = open_folder(disk, trace.config).logs["t", 0]
    after = int(disk.read_bytes(RECOVERY_POINT_CHECKPOINT).split()[-1])
    assert (after, after < before) == (log.log_end_offset, True)
