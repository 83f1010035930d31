"""The remains of written data after a power cut, a killed process, a failed sync and rot."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.medium import EVERYTHING, Content, Fate, Medium, Names, persisted_part

from testkit.basics.threads import switching_often
from testkit.worlds.power_cuts.states import choices


def durable_file(content: bytes) -> FaultyDisk:
    disk = FaultyDisk()
    disk.write_atomic("a", content)
    return disk


def listings(disk: FaultyDisk, bound: int = 10_000) -> set[tuple[str, ...]]:
    """Returns the names at the top in every state that a power cut may leave."""
    found = choices(disk.medium, bound, Random(0))
    return {tuple(sorted(disk.crash(choice.fate()).listdir(""))) for choice in found}


def contents(disk: FaultyDisk, bound: int = 10_000) -> set[bytes]:
    """Returns what `a` may hold."""
    found = choices(disk.medium, bound, Random(0))
    return {disk.crash(choice.fate()).read_bytes("a") for choice in found}


def test_a_power_cut_takes_what_was_not_synced() -> None:
    disk = durable_file(b"synced")
    disk.open_append("a").append(b", lost")
    disk.write_bytes("b", b"name never synced")
    after = disk.crash()
    assert after.listdir("") == ["a"]
    assert after.read_bytes("a") == b"synced"


def test_a_power_cut_may_spare_some_of_it_or_all() -> None:
    disk = durable_file(b"synced")
    disk.open_append("a").append(b"123456")
    disk.write_bytes("b", b"named")
    assert disk.crash(persisted_part(0.5)).read_bytes("a") == b"synced123"
    after = disk.crash(EVERYTHING)
    assert (after.read_bytes("a"), after.read_bytes("b")) == (b"synced123456", b"named")


def test_a_power_cut_brings_back_what_was_removed_renamed_or_cut_without_a_sync() -> None:
    disk = durable_file(b"content")
    disk.open_append("a").truncate(3)
    disk.rename("a", "b")
    assert disk.read_bytes("b") == b"con"
    assert disk.crash().read_bytes("a") == b"content"
    disk.sync_dir("")
    assert disk.crash().read_bytes("b") == b"content"
    file = disk.open_append("b")
    file.append(b"sider")
    file.sync()
    assert disk.crash().read_bytes("b") == b"consider"


def test_a_folder_needs_its_parents_sync_too() -> None:
    disk = FaultyDisk()
    disk.mkdir("f")
    disk.write_atomic("f/a", b"content")
    assert disk.crash().listdir("") == []
    disk.sync_dir("")
    assert disk.crash().read_bytes("f/a") == b"content"


def test_a_killed_process_loses_nothing_but_its_locks() -> None:
    disk = FaultyDisk()
    disk.mkdir("f")
    disk.write_bytes("f/a", b"content")
    disk.lock(".lock")
    after = disk.kill()
    assert after.read_bytes("f/a") == b"content"
    after.lock(".lock")
    assert after.crash().listdir("") == []


def test_twins_go_their_own_ways() -> None:
    disk = durable_file(b"one")
    after = disk.kill()
    after.open_append("a").append(b"two")
    assert disk.read_bytes("a") == b"one"


def test_sectors_are_kept_and_lost_one_by_one_and_the_size_by_itself() -> None:
    disk = durable_file(b"")
    disk.open_append("a").append(b"1" * 512 + b"2" * 512 + b"3")
    found = contents(disk)
    assert {len(content) for content in found} == {0, 512, 1024, 1025}
    zeros = bytes(512)
    assert b"1" * 512 + zeros + b"3" in found
    assert zeros + b"2" * 512 in found
    assert bytes(1025) in found


def test_a_gap_may_hold_what_stood_there_before() -> None:
    disk = durable_file(b"")
    disk.open_append("a").append(b"1" * 512 + b"2" * 512)
    assert b"1" * 1024 in contents(disk)


def test_a_sector_may_be_as_it_was_after_any_write_whatever_the_size() -> None:
    disk = durable_file(b"0")
    file = disk.open_append("a")
    file.append(b"1")
    file.append(b"2")
    file.truncate(1)
    file.append(b"3")
    assert contents(disk) == {b"0", b"0\0", b"01", b"03", b"0\0\0", b"01\0", b"012", b"03\0"}


def test_of_the_operations_of_a_folder_any_may_be_lost_but_those_of_one_name_keep_their_order() -> None:
    disk = FaultyDisk()
    for name in "ab":
        disk.write_bytes(name, b"")
    disk.sync_dir("")
    disk.rename("a", "a.deleted")
    disk.rename("b", "b.deleted")
    disk.remove("a.deleted")
    assert listings(disk) == {
        ("a", "b"),
        ("a.deleted", "b"),
        ("b",),
        ("a", "b.deleted"),
        ("a.deleted", "b.deleted"),
        ("b.deleted",),
    }


def test_a_rename_to_another_folder_may_be_seen_in_both_or_in_neither() -> None:
    disk = FaultyDisk()
    disk.mkdir("f")
    disk.write_bytes("a", b"")
    disk.sync_dir("")
    disk.rename("a", "f/a")
    found = set()
    for choice in choices(disk.medium, 100, Random(0)):
        after = disk.crash(choice.fate())
        found.add((after.exists("a"), after.exists("f/a")))
    assert found == {(True, False), (False, True), (True, True), (False, False)}
    disk.sync_dir("f")
    assert disk.crash().listdir("f") == ["a"]


def test_a_failed_sync_drops_what_was_pending_and_the_next_one_does_not_bring_it_back() -> None:
    disk = durable_file(b"synced")
    file = disk.open_append("a")
    file.append(b"dropped")

    def fail(operation: str, path: str) -> None:
        raise OSError(errno.EIO, f"{operation} {path}")

    disk.before_operation = fail
    with pytest.raises(OSError, match="sync a"):
        file.sync()
    with pytest.raises(OSError, match="sync_dir"):
        disk.sync_dir("")
    disk.before_operation = None
    file.append(b"later")
    file.sync()
    assert disk.read_bytes("a") == b"synceddroppedlater"
    assert disk.crash().read_bytes("a") == b"synced" + bytes(7) + b"later"
    assert disk.crash(EVERYTHING).read_bytes("a") == b"synced" + bytes(7) + b"later"


def test_what_is_on_the_medium_may_rot_there() -> None:
    disk = durable_file(b"content")
    disk.rot("a", 2, 1)
    assert disk.read_bytes("a") == b"cootent"
    assert disk.crash().read_bytes("a") == b"cootent"


def test_the_journal_makes_every_moment_again() -> None:
    disk = FaultyDisk()
    before = disk.medium.copy()
    disk.mkdir("f")
    disk.write_atomic("f/a", b"one")
    disk.write_atomic("f/a", b"two")
    disk.sync_dir("")
    disk.remove_tree("f")
    seen = []
    for entry in disk.journal:
        before.apply(entry.change)
        after = FaultyDisk(medium=before.after_power_cut(EVERYTHING))
        seen.append(after.read_bytes("f/a") if after.exists("f/a") else None)
    assert seen[0] is None
    assert list(dict.fromkeys(seen)) == [None, b"one", b"two"]
    assert seen[-1] is None


def test_fates_are_drawn_only_for_what_is_pending() -> None:
    disk = durable_file(b"one")
    pending: list[object] = []

    def content(_number: int, file: Content) -> bytes:
        pending.append(file)
        return file.durable

    def names(_number: int, folder: Names) -> list[int]:
        pending.append(folder)
        return []

    disk.crash(Fate(content, names))
    assert pending == []
    disk.open_append("a").append(b"two")
    disk.crash(Fate(content, names))
    assert len(pending) == 1


def test_more_states_than_the_bound_are_sampled_and_the_plain_ones_are_among_them() -> None:
    disk = FaultyDisk()
    for name in "abcdefgh":
        disk.write_bytes(name, bytes(700))
    some = listings(disk, bound=50)
    assert 10 < len(some) <= 50
    assert () in some
    assert tuple("abcdefgh") in some
    assert listings(disk, bound=50) == some


@switching_often()
def test_threads_that_change_one_folder_at_once_lose_no_change() -> None:
    disk = FaultyDisk()

    def write_and_sync(thread: int) -> None:
        for number in range(100):
            disk.write_bytes(f"{thread}-{number}", b"content")
            disk.sync_dir("")
            assert f"{thread}-{number}" in disk.kill().crash().listdir("")

    with ThreadPoolExecutor(3) as pool:
        for written in [pool.submit(write_and_sync, thread) for thread in range(3)]:
            written.result()
    assert len(disk.crash().listdir("")) == 300
    medium = Medium()
    for entry in disk.journal:
        medium.apply(entry.change)
    assert medium.durable_contents() == disk.medium.durable_contents()
