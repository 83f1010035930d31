"""A segment file that has fewer bytes than its log expects: someone has cut it while the broker runs."""

from __future__ import annotations

import attrs
import pytest
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.directory.moving import LogMove
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError, StorageError
from kwire_storage.inspection.copies import Copies
from kwire_storage.log.log import Log
from kwire_storage.log.scan import scan_batches

from testkit.storage.compacting import compact
from testkit.storage.damaged import CONFIG, filled, location, path
from testkit.storage.logs import append

UNIQUE = bytes(16)


def cut(log: Log, size: int) -> None:
    """Cuts the first segment's file; the log does not notice."""
    file = log.disk.open_append(path(0))
    file.truncate(size)
    file.close()


@pytest.mark.parametrize(
    "size",
    [0, location(5)[1], location(5)[1] + 7, location(5)[1] + 70],
    ids=["empty", "ends between batches", "ends in a header", "ends in the records"],
)
def test_a_scan_ends_with_an_error_where_the_file_ends(size: int) -> None:
    log = filled()
    end = log.segments[0].size
    cut(log, size)
    message = f"^{size}: the file ends there, and has {end} bytes according to its log"
    with pytest.raises(CorruptLogError, match=message):
        list(scan_batches(log.disk.open_read(path(0)), end))


def test_a_cleaning_of_it_is_refused_and_the_error_names_the_file() -> None:
    log = filled(config=attrs.evolve(CONFIG, cleanup_policy="compact"))
    size = location(5)[1]
    cut(log, size)
    with pytest.raises(CorruptLogError, match=f"^00000000000000000000.log at {size}: the file ends there"):
        compact(log)


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_a_move_of_it_to_another_log_dir_is_refused(batch: int) -> None:
    source, target = (
        LogDir.open(MemoryDisk(), cluster_id="c", node_id=1, directory_id=bytes([it]) * 16) for it in (1, 2)
    )
    log = source.create_log("orders", 0, UNIQUE, CONFIG, now_ms=0)
    for _ in range(10):
        append(log)
    move = LogMove.begin(("orders", 0), UNIQUE, source, target, unique=UNIQUE, now_ms=0)
    piece = move.next_piece(1 << 20)
    assert piece is not None
    place = log.segments[0].locate(batch)
    assert place is not None
    cut(log, place[0])
    with pytest.raises(CorruptLogError, match="orders-0 .* has fewer bytes than its log knows of"):
        move.append(piece, now_ms=0)


def test_a_repair_does_not_take_out_a_range_behind_its_end() -> None:
    log = filled()
    size = len(log.disk.read_bytes(path(0)))
    with pytest.raises(StorageError, match=f"ends at {size}"):
        Copies(log.disk, "20260131T120000Z").take_out(path(0), [(size + 10, size + 20)])
