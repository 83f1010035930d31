"""A log dir with something of everything in it, and checking and repairing it as the command does."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache

from kwire_protocol.records import Record, build_batch
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import Disk
from kwire_storage.inspection import Finding, Kind, Severity, TopicFacts, check_folder, read_state
from kwire_storage.inspection.copies import Copies
from kwire_storage.inspection.repair import Checkup, repair
from kwire_storage.log.log import Log, LogConfig

from testkit.storage.logs import append_bytes, end_transaction

CONFIG = LogConfig(segment_bytes=2500, index_interval_bytes=300)
TOPIC_ID = bytes(range(16))
FACTS = {"orders": TopicFacts(TOPIC_ID, compacts=False, index_interval_bytes=300)}
FIRST_MS = 1_700_000_000_000


def open_data(disk: Disk) -> LogDir:
    return LogDir.open(disk, cluster_id="cluster", node_id=1, directory_id=bytes(16))


def fill(log: Log, batches: int, seed: int = 1) -> None:
    """An idempotent and a transactional producer, every codec, three leader epochs; the last transaction stays open."""
    random_ = random.Random(seed)
    sequences = {1: 0, 2: 0}
    for number in range(batches):
        producer_id = number % 2 + 1
        count = random_.randrange(1, 4)
        records = [
            Record(0, FIRST_MS + number * 100 + index, b"key", random_.randbytes(random_.randrange(80)))
            for index in range(count)
        ]
        batch = build_batch(
            records,
            compression=number % 5,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequences[producer_id],
            transactional=producer_id == 2,
        )
        epoch = 3 + 3 * number // batches
        append_bytes(log, batch, leader_epoch=epoch, now_ms=FIRST_MS + number)
        sequences[producer_id] += count
        if number % 6 == 5 and number < batches - 1:
            end_transaction(log, 2, commit=number % 12 == 5, leader_epoch=epoch)


def write_folder(disk: Disk, *, batches: int = 60, clean: bool = True) -> None:
    """`orders-0`, several segments, stopped cleanly or killed, on a disk that is empty."""
    folder = open_data(disk)
    log = folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    fill(log, batches)
    if clean:
        folder.close({("orders", 0): log.log_end_offset})
    else:
        folder.abandon()


@cache
def _made(batches: int, clean: bool) -> FaultyDisk:
    disk = FaultyDisk()
    write_folder(disk, batches=batches, clean=clean)
    return disk


def make_folder(*, batches: int = 60, clean: bool = True) -> FaultyDisk:
    """Makes a folder like `write_folder`."""
    return _made(batches, clean).kill()


def checkup(disk: Disk, topics: Mapping[str, TopicFacts] | None = None) -> Checkup:
    state = read_state(disk, FACTS if topics is None else topics)
    checked = Checkup(state, [], {})
    checked.findings.extend(check_folder(disk, state, summaries=checked.summaries))
    return checked


def findings_of(disk: Disk, topics: Mapping[str, TopicFacts] | None = None) -> list[Finding]:
    return checkup(disk, topics).findings


def wrong(findings: list[Finding]) -> set[Kind]:
    """The kinds that are not mere notes."""
    return {finding.kind for finding in findings if finding.severity is not Severity.NOTE}


def repair_folder(
    disk: Disk, *, drop: bool = False, topics: Mapping[str, TopicFacts] | None = None
) -> tuple[list[Finding], Copies]:
    """Repairs a folder. Returns the remaining files, and the copies."""
    copies = Copies(disk, "20260131T120000Z")
    again: Callable[[], Checkup] = lambda: checkup(disk, topics)  # noqa: E731 - a def here would be longer
    return repair(disk, again(), again, copies, drop_corrupt_ranges=drop).findings, copies
