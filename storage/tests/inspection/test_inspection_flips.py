"""One wrong byte anywhere in a `.log` is found.

The CRC covers a batch from its attributes on. Outside of it are the first 17 bytes and the CRC itself:

    base offset     it must ascend, fit in before the next batch and segment, and agree with indexes, snapshots and
                    epochs; beside a hole that compaction left, where several offsets would fit, a wrong one that
                    happens to fit is found by the index entries of that batch, if it has any
    length          the next batch must begin where it ends, and the CRC covers that length
    leader epoch    it must not descend, and leader-epoch-checkpoint must have its start
    magic           only 2 is one
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.records import read_header
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.inspection import Batch, walk

from devtools.suite.tiers import examples
from testkit.storage.inspected import findings_of, make_folder, wrong
from testkit.storage.plantings import BASES, of, positions

FEW = 14


def flipped(path: str, position: int, mask: int, *, batches: int) -> MemoryDisk:
    disk = make_folder(batches=batches)
    content = bytearray(disk.read_bytes(path))
    content[position] ^= mask
    disk.write_bytes(path, bytes(content))
    return disk


def test_every_byte_of_a_small_log() -> None:
    random_ = random.Random(1)
    path = of(0, ".log")
    size = make_folder(batches=FEW).size(path)
    assert size > 1000
    unseen = [
        (position, mask)
        for position in range(size)
        for mask in (random_.randrange(1, 256),)
        if not wrong(findings_of(flipped(path, position, mask, batches=FEW)))
    ]
    assert unseen == []


@pytest.mark.parametrize("base", BASES)
def test_every_byte_of_the_headers_of_a_batch_in_each_segment(base: int) -> None:
    places = positions(make_folder(), base)
    for at, _ in (places[0], places[len(places) // 2], places[-1]):
        for position in range(at, at + 61):
            for mask in (1, 128):
                assert wrong(findings_of(flipped(of(base, ".log"), position, mask, batches=60))), (position - at, mask)


@given(st.sampled_from(BASES), st.integers(0), st.integers(1, 255))
@settings(max_examples=examples(50), deadline=None)
def test_any_byte_of_a_large_log(base: int, at: int, mask: int) -> None:
    path = of(base, ".log")
    position = at % make_folder().size(path)
    assert wrong(findings_of(flipped(path, position, mask, batches=60)))


@given(st.sampled_from(BASES), st.integers(0), st.integers(0, 300), st.randoms(use_true_random=False))
@settings(max_examples=examples(50), deadline=None)
def test_a_rotten_range_costs_the_batches_in_it_and_no_other(
    base: int, at: int, length: int, random_: random.Random
) -> None:
    path = of(base, ".log")
    disk = make_folder()
    content = bytearray(disk.read_bytes(path))
    start = at % len(content)
    end = min(start + length + 1, len(content))
    content[start:end] = bytes(byte ^ random_.randrange(1, 256) for byte in content[start:end])
    disk.write_bytes(path, bytes(content))
    good = [place for place in positions(make_folder(), base) if place[0] + place[1] <= start or place[0] >= end]
    found = list(walk(disk.open_read(path), len(content), base))
    taken = [(piece.position, piece.header.size_in_bytes) for piece in found if isinstance(piece, Batch)]
    assert set(good) <= set(taken)
    for at, _ in set(taken) - set(good):
        # A walk alone checks no epochs, and does not notice a last offset that is too large.
        assert at + 12 <= start < end <= at + 16 or (at <= start < end <= at + 8 and at == max(taken)[0])
    ends = [piece.position + piece.header.size_in_bytes if isinstance(piece, Batch) else piece.end for piece in found]
    assert [piece.position for piece in found] == [0, *ends[:-1]], "no gap, no overlap"
    assert ends[-1] == len(content)


@pytest.mark.parametrize("base", BASES)
def test_a_wrong_length_that_ends_at_a_later_batch_costs_no_batch_in_between(base: int) -> None:
    path, places = of(base, ".log"), positions(make_folder(), base)
    first, later = places[1], [at for at, _ in places[3:]]
    for end in later:
        disk = make_folder()
        content = bytearray(disk.read_bytes(path))
        content[first[0] + 8 : first[0] + 12] = (end - first[0] - 12).to_bytes(4, "big")
        disk.write_bytes(path, bytes(content))
        found = walk(disk.open_read(path), len(content), base)
        assert [piece.position for piece in found if isinstance(piece, Batch)] == [
            at for at, _ in places if at != first[0]
        ]


@given(st.binary(max_size=3000))
@settings(max_examples=examples(70), deadline=None)
def test_any_bytes_at_all_are_walked_over(content: bytes) -> None:
    disk = MemoryDisk()
    disk.write_bytes("file", content)
    found = list(walk(disk.open_read("file"), len(content), 0))
    assert sum(
        piece.header.size_in_bytes if isinstance(piece, Batch) else piece.end - piece.position for piece in found
    ) == len(content)


def test_a_batch_within_a_record_is_not_taken_for_one_of_the_log() -> None:
    """A topic may hold dumps of another: what a good batch contains is its own."""
    from kwire_protocol.records import Record, build_batch

    inner = build_batch([Record(0, 1000, b"k", b"v")], base_offset=1)
    outer = build_batch([Record(0, 1000, b"k", inner)])
    disk = MemoryDisk()
    disk.write_bytes("file", outer)
    (piece,) = walk(disk.open_read("file"), len(outer), 0)
    assert isinstance(piece, Batch)
    assert piece.header == read_header(outer)
