"""Everything that can be wrong is found, named for what it is, and repaired as far as it can be."""

from __future__ import annotations

import pytest
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.inspection import Kind, Severity, TopicFacts, check_partition, read_state
from kwire_storage.inspection.partition_check import PartitionContext, PartitionSummary
from kwire_storage.log.index import TimeIndex
from kwire_storage.names import LEADER_EPOCH_CHECKPOINT

from testkit.storage import plantings
from testkit.storage.compacting import COMPACTED, compact, put
from testkit.storage.inspected import CONFIG, findings_of, make_folder, open_data, repair_folder, wrong
from testkit.storage.logs import append, end_transaction, open_log, read_all
from testkit.storage.plantings import BASES, END, FOLDER, Planting, of, positions


def tree(disk: FaultyDisk, path: str = "") -> dict[str, bytes]:
    """Returns every file and its content; the copies of a repair left out."""
    found: dict[str, bytes] = {}
    for name in disk.listdir(path):
        full = f"{path}/{name}" if path else name
        if "kwire-repair" in name:
            continue
        try:
            found |= tree(disk, full)
        except NotADirectoryError:
            found[full] = disk.read_bytes(full)
    return found


def test_nothing_is_wrong_with_a_folder_that_was_stopped_cleanly() -> None:
    disk = make_folder()
    assert findings_of(disk) == []
    assert findings_of(disk, topics={}) == []
    log = open_data(disk).open_log("orders", 0, CONFIG, now_ms=0)
    assert (tuple(log.segments.bases), log.log_end_offset) == (BASES, END)


@pytest.mark.parametrize("planting", plantings.ALL, ids=lambda planting: planting.name)
def test_what_is_planted_is_found_and_repaired(planting: Planting) -> None:
    disk = make_folder()
    planting.plant(disk)
    before = tree(disk)
    found = findings_of(disk)
    assert planting.finds in {finding.kind for finding in found}
    if planting.is_note:
        assert {f.severity for f in found if f.kind is planting.finds} == {Severity.NOTE}
    else:
        assert planting.finds in wrong(found)
    assert tree(disk) == before, "a check changes nothing"
    left, copies = repair_folder(disk, drop=planting.drop)
    assert wrong(left) == planting.left
    kept = {copy: disk.read_bytes(copy) for copy in copies.paths}
    after = tree(disk)
    for path, content in before.items():
        if content not in after.values():
            assert any(path.rpartition("/")[2] in copy for copy in kept), f"no copy of {path}"
    again, _ = repair_folder(disk, drop=planting.drop)
    assert wrong(again) == planting.left
    assert tree(disk) == after, "a second repair has nothing to do"


@pytest.mark.parametrize(
    "planting",
    [planting for planting in [*plantings.RECORDS, *plantings.DERIVED] if not planting.left],
    ids=lambda planting: planting.name,
)
def test_a_log_that_was_repaired_is_served_and_written_to(planting: Planting) -> None:
    disk = make_folder()
    planting.plant(disk)
    left, _ = repair_folder(disk, drop=planting.drop)
    assert wrong(left) == set()
    folder = open_data(disk)
    assert folder.clean_shutdown
    log = folder.open_log("orders", 0, CONFIG, now_ms=0)
    # The end of a segment that is lost stays lost, and readers get an error.
    batches = read_all(log, past_corrupt=True)
    assert batches[0][0] == 0
    assert batches[-1][1] == log.log_end_offset - 1
    append(log, 2, leader_epoch=9)
    assert log.log_end_offset == batches[-1][1] + 3
    folder.close()
    assert wrong(findings_of(disk)) == set()


def test_the_copies_of_what_was_cut_are_the_bytes_that_stood_there() -> None:
    disk = make_folder()
    batches = positions(disk, 23)
    at, size = batches[3]
    before = disk.read_bytes(of(23, ".log"))
    plantings.RECORDS[0].plant(disk)
    rotten = disk.read_bytes(of(23, ".log"))
    _, copies = repair_folder(disk, drop=True)
    copy = f"{FOLDER}/kwire-repair-20260131T120000Z/00000000000000000023.log.{at}-{at + size}"
    assert copy in copies.paths
    assert disk.read_bytes(copy) == rotten[at : at + size]
    assert disk.read_bytes(of(23, ".log")) == before[:at] + before[at + size :]


def test_a_corrupt_range_costs_what_is_in_it_and_no_more() -> None:
    disk = make_folder()
    plantings.RECORDS[0].plant(disk)
    (finding,) = [finding for finding in findings_of(disk) if finding.kind is Kind.CORRUPT_RANGE]
    at, size = positions(make_folder(), 23)[3]
    assert (finding.path, finding.position, finding.end_position) == (of(23, ".log"), at, at + size)


def test_after_a_kill_what_recovery_makes_again_is_a_note() -> None:
    disk = make_folder(clean=False)
    found = findings_of(disk)
    assert wrong(found) == set()
    assert Kind.TIME_INDEX_SHORT in {finding.kind for finding in found}
    disk.open_append(of(103, ".log")).append(b"torn")
    assert wrong(findings_of(disk)) == {Kind.TORN_TAIL}


def test_below_the_recovery_point_derived_files_must_be_right_even_after_a_kill() -> None:
    disk = make_folder()
    disk.remove(".kafka_cleanshutdown")
    disk.remove(of(0, ".index"))
    assert wrong(findings_of(disk)) == {Kind.INDEX_MISSING}
    disk.write_bytes("recovery-point-offset-checkpoint", b"0\n1\norders 0 22\n")
    assert wrong(findings_of(disk)) == set()


def test_while_a_broker_is_at_work_a_torn_tail_is_being_written() -> None:
    disk = make_folder(clean=False)
    disk.lock(".lock")
    disk.open_append(of(103, ".log")).append(b"half a batch")
    found = findings_of(disk)
    assert wrong(found) == set()
    assert Kind.BEING_WRITTEN in {finding.kind for finding in found}
    # In the middle of the log it is corruption, broker or not.
    plantings.RECORDS[0].plant(disk)
    assert wrong(findings_of(disk)) == {Kind.CORRUPT_RANGE}


def test_a_check_takes_no_lock() -> None:
    disk = make_folder()
    findings_of(disk)
    disk.lock(".lock").release()


def test_holes_are_nothing_to_speak_of_where_the_topic_is_compacted() -> None:
    disk = make_folder()
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        disk.remove(of(47, suffix))
    findings = {
        compacts: [
            f for f in findings_of(disk, {"orders": TopicFacts(bytes(range(16)), compacts)}) if f.kind is Kind.HOLE
        ]
        for compacts in (True, False, None)
    }
    assert [len(findings[compacts]) for compacts in (True, False, None)] == [0, 1, 1]
    assert "not compacted" in findings[False][0].what


def test_a_partition_alone_is_held_to_the_strictest_rules() -> None:
    disk = make_folder()
    for name in [name for name in disk.listdir("") if name != FOLDER]:
        disk.remove(name)
    disk.remove(of(103, ".index"))
    state = read_state(disk)
    assert not state.is_folder
    assert state.context(FOLDER) == PartitionContext()
    assert wrong(list(check_partition(disk, FOLDER, PartitionContext(), PartitionSummary()))) == {Kind.INDEX_MISSING}


def test_a_repair_of_partition_metadata_needs_the_topics_id() -> None:
    disk = make_folder()
    disk.remove(f"{FOLDER}/partition.metadata")
    left, copies = repair_folder(disk, topics={})
    assert (wrong(left), copies.paths) == ({Kind.METADATA_MISSING}, [])
    left, _ = repair_folder(disk)
    assert wrong(left) == set()
    assert open_data(disk).topic_id("orders", 0) == bytes(range(16))


@pytest.mark.parametrize("planting", plantings.ONE_OF_EACH, ids=lambda planting: planting.name)
def test_a_repair_that_loses_power_at_any_moment_has_kept_everything_and_can_be_done_again(planting: Planting) -> None:
    class PowerCut(Exception):
        pass

    def planted() -> FaultyDisk:
        disk = make_folder()
        planting.plant(disk)
        return disk.kill()

    def durable(disk: FaultyDisk) -> FaultyDisk:
        """Syncs all that is there, as if it were old."""
        for path in tree(disk):
            disk.open_read(path).sync()
            disk.sync_dir(path.rpartition("/")[0])
        for name in disk.listdir(""):
            if "-" in name and "checkpoint" not in name:
                disk.sync_dir(name)
        disk.sync_dir("")
        return disk

    expected = planted()
    repair_folder(expected, drop=planting.drop)
    moment = 0
    while True:
        disk = durable(planted())
        before = tree(disk)
        operations = 0

        def cut_power(_name: str, _path: str, most: int = moment) -> None:
            nonlocal operations
            operations += 1
            if operations > most:
                raise PowerCut

        disk.before_operation = cut_power
        try:
            repair_folder(disk, drop=planting.drop)
        except PowerCut:
            left = disk.crash()
        else:
            break
        everything = all_contents(left)
        for path, content in before.items():
            if not path.endswith(".tmp"):
                assert is_kept(content, path, left, everything), f"{path} is lost at operation {moment}"
        found, _ = repair_folder(left, drop=planting.drop)
        assert wrong(found) == planting.left
        assert tree(left) == tree(expected)
        moment += 1 + moment // 4
    assert moment or planting.left or planting.is_note


def all_contents(disk: FaultyDisk, path: str = "") -> list[bytes]:
    found: list[bytes] = []
    for name in disk.listdir(path):
        full = f"{path}/{name}" if path else name
        try:
            found += all_contents(disk, full)
        except NotADirectoryError:
            found.append(disk.read_bytes(full))
    return found


def is_kept(content: bytes, path: str, disk: FaultyDisk, everything: list[bytes]) -> bool:
    """Returns whether the content is somewhere whole, or as the part left and the part cut from it."""
    if content in everything or not path.endswith(".log"):
        return content in everything
    left = disk.read_bytes(path)
    for cut in everything:
        at = content.find(cut)
        if cut and at >= 0 and left == content[:at] + content[at + len(cut) :]:
            return True
    return False


def test_what_compaction_leaves_is_sound() -> None:
    disk = FaultyDisk()
    folder = open_data(disk)
    log = folder.create_log("table", 0, bytes(range(16)), COMPACTED, now_ms=0)
    for number in range(120):
        producer = {"producer_id": 5, "sequence": number, "transactional": number % 3 == 0}
        put(log, (f"key {number % 7}", f"value {number}"), timestamp_ms=1000 + number, **producer)  # type: ignore[arg-type]
        if number % 3 == 0:
            end_transaction(log, 5, commit=number % 2 == 0)
    assert compact(log, now_ms=10_000) > 0
    assert sum(header.records_count for header, _ in log.batches()) < 100
    folder.close()
    found = findings_of(disk, {"table": TopicFacts(bytes(range(16)), compacts=True)})
    assert {finding.kind for finding in found} <= {Kind.LEFTOVER}
    assert wrong(findings_of(disk, {})) == set(), "not knowing the policy, a hole is a note"


def test_a_log_may_begin_where_compaction_has_removed_the_batch() -> None:
    disk = FaultyDisk()
    folder = open_data(disk)
    log = folder.create_log("table", 0, bytes(range(16)), COMPACTED, now_ms=0)
    put(log, ("a", "1"), ("b", "1"), leader_epoch=0)
    put(log, ("c", "1"), leader_epoch=1)
    log.roll(0)
    put(log, ("c", "2"), ("d", "2"), leader_epoch=1)
    log.roll(0)
    assert compact(log, now_ms=1) > 0
    log.advance_log_start(2)
    assert [header.base_offset for header, _ in log.batches()] == [3], "offset 2 has been cleaned"
    assert log.leader_epochs.entries == [(1, 2)]
    folder.close()
    topics = {"table": TopicFacts(bytes(range(16)), compacts=True)}
    assert wrong(findings_of(disk, topics)) == set()

    disk.write_bytes(f"table-0/{LEADER_EPOCH_CHECKPOINT}", b"garbage")
    assert wrong(findings_of(disk, topics)) == {Kind.EPOCHS_UNREADABLE}
    repair_folder(disk, topics=topics)
    assert wrong(findings_of(disk, topics)) == set()


def emptied_segment(disk: FaultyDisk) -> None:
    """Makes `table-0`, whose first segment has only a transactional batch without records, after a clean stop."""
    folder = open_data(disk)
    log = folder.create_log("table", 0, bytes(range(16)), COMPACTED, now_ms=0)
    put(log, ("a", "1"), timestamp_ms=500, producer_id=5, sequence=0, transactional=True)
    log.roll(0)
    put(log, ("a", "2" * 900))
    log.roll(0)
    end_transaction(log, 5, commit=True)
    put(log, ("b", "3" * 700))
    log.roll(0)
    compact(log, now_ms=1)
    (emptied,) = [header for header, _ in log.batches() if header.last_offset < log.segments.bases[1]]
    assert (emptied.records_count, emptied.max_timestamp) == (0, 500)
    folder.close()


def test_an_emptied_batch_needs_no_entry_of_the_time_index() -> None:
    disk = FaultyDisk()
    emptied_segment(disk)
    assert wrong(findings_of(disk, {"table": TopicFacts(bytes(range(16)), compacts=True)})) == set()


def test_the_time_index_of_emptied_batches_may_also_be_apache_kafkas() -> None:
    disk = FaultyDisk()
    emptied_segment(disk)
    index = TimeIndex()
    index.maybe_append(500, 0)
    disk.write_bytes(f"table-0/{0:020d}.timeindex", index.to_bytes())
    assert wrong(findings_of(disk, {"table": TopicFacts(bytes(range(16)), compacts=True)})) == set()


def test_the_empty_time_index_of_emptied_batches_is_not_made_again_at_each_start() -> None:
    disk = FaultyDisk()
    emptied_segment(disk)
    first = open_data(disk).open_log("table", 0, COMPACTED, now_ms=0).segments[0]
    assert (len(first.time_index), first.indexes_dirty) == (0, False)


def test_an_empty_time_index_of_records_is_made_again() -> None:
    disk = FaultyDisk()
    emptied_segment(disk)
    disk.write_bytes(f"table-0/{1:020d}.timeindex", b"")
    second = open_data(disk).open_log("table", 0, COMPACTED, now_ms=0).segments[1]
    assert second.largest_timestamp == 1000
    assert second.indexes_dirty


def test_the_batch_whose_offset_leaps_is_the_wrong_one_and_not_those_behind_it() -> None:
    disk = make_folder()
    at, size = positions(disk, 23)[3]
    planting = next(planting for planting in plantings.RECORDS if planting.name == "an offset that leaps")
    planting.plant(disk)
    (finding,) = [finding for finding in findings_of(disk) if finding.kind is Kind.OFFSET_ORDER]
    assert (finding.position, finding.end_position) == (at, at + size)


def test_a_file_too_large_for_what_it_should_be_is_not_read() -> None:
    class Large(FaultyDisk):
        def size(self, path: str) -> int:
            return 1 << 40 if path.endswith(("snapshot", "checkpoint", "txnindex")) else super().size(path)

    disk = make_folder()
    disk.__class__ = Large
    kinds = {finding.kind for finding in findings_of(disk)}
    assert kinds >= {
        Kind.SNAPSHOT_UNREADABLE,
        Kind.EPOCHS_UNREADABLE,
        Kind.TXN_INDEX_UNREADABLE,
        Kind.CHECKPOINT_UNREADABLE,
    }


def test_a_time_entry_below_what_came_before_is_wrong_even_if_its_batch_has_that_time() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    for timestamp_ms in (9000, 5000):
        append(log, timestamp_ms=timestamp_ms)
    log.close()
    assert wrong(findings_of(disk)) <= {Kind.METADATA_MISSING, Kind.META_MISSING}
    index = TimeIndex()
    index.maybe_append(5000, 1)
    disk.write_bytes(of(0, ".timeindex"), index.to_bytes())
    (finding,) = [finding for finding in findings_of(disk) if finding.path == of(0, ".timeindex")]
    assert finding.kind is Kind.INDEX_ENTRY
    assert "a batch before it 9000" in finding.what
