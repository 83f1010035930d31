"""Small payloads that would become large: refused at the cap, with memory to match."""

from __future__ import annotations

import gzip
import resource
import tracemalloc
from collections.abc import Callable

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from kwire_protocol.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_MAGIC,
    ZSTD,
    CorruptData,
    DecompressionTooLarge,
    decompress,
)
from kwire_protocol.errors import ErrorCode
from kwire_protocol.records import InvalidBatch, Record, build_batch, iter_records

from testkit.messages.record_strategies import with_content

MIB = 1024 * 1024
BOMB_BYTES = 256 * MIB
CAP_BYTES = 8 * MIB
PIECE = bytes(MIB)


def gzip_bomb() -> bytes:
    return gzip.compress(PIECE * 16, 9) * (BOMB_BYTES // MIB // 16)


def gzip_bomb_of_one_member() -> bytes:
    return gzip.compress(bytes(BOMB_BYTES // 4), 9)


def snappy_bomb() -> bytes:
    raw = bytes(cramjam.snappy.compress_raw(bytes(BOMB_BYTES // 4)))
    assert len(raw) < BOMB_BYTES // 4 // 20
    return raw


def xerial_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(PIECE))
    return XERIAL_MAGIC + bytes(8) + (len(block).to_bytes(4, "big") + block) * (BOMB_BYTES // MIB)


def lz4_bomb() -> bytes:
    return bytes(lz4.frame.compress(bytes(BOMB_BYTES // 4)))


def zstd_bomb() -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(bytes(BOMB_BYTES))


def zstd_bomb_without_size() -> bytes:
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join(stream.compress(PIECE) for _ in range(BOMB_BYTES // MIB)) + stream.flush()


def zstd_bomb_of_frames() -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(PIECE) * (BOMB_BYTES // MIB)


BOMBS: list[tuple[int, Callable[[], bytes]]] = [
    (GZIP, gzip_bomb),
    (GZIP, gzip_bomb_of_one_member),
    (SNAPPY, snappy_bomb),
    (SNAPPY, xerial_bomb),
    (LZ4, lz4_bomb),
    (ZSTD, zstd_bomb),
    (ZSTD, zstd_bomb_without_size),
    (ZSTD, zstd_bomb_of_frames),
]


def peak_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(("codec", "make"), BOMBS, ids=[make.__name__ for _, make in BOMBS])
def test_a_bomb_is_refused_at_the_cap_with_bounded_memory(codec: int, make: Callable[[], bytes]) -> None:
    bomb = make()
    resident = peak_resident_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, bomb, CAP_BYTES)
        _, peak_traced = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_traced < 2 * CAP_BYTES + MIB
    assert peak_resident_bytes() - resident < 4 * CAP_BYTES


@pytest.mark.parametrize(
    ("codec", "lie"),
    [
        (SNAPPY, b"\xff\xff\xff\xff\x07" + b"\0" * 20),
        (SNAPPY, XERIAL_MAGIC + bytes(8) + (25).to_bytes(4, "big") + b"\xff\xff\xff\xff\x07" + b"\0" * 20),
        # A content size of 2^62 in the header, then one empty block.
        (ZSTD, bytes.fromhex("28b52ffd e0 0000000000000040 010000")),
        # The largest window that can be requested.
        (ZSTD, bytes.fromhex("28b52ffd 00 ff 010000")),
        (LZ4, bytes.fromhex("04224d18 68 70 0000000000000040 00 00000000")),
    ],
    ids=["raw snappy", "xerial snappy", "zstd size", "zstd window", "lz4 size"],
)
def test_a_claimed_size_allocates_nothing(codec: int, lie: bytes) -> None:
    resident = peak_resident_bytes()
    tracemalloc.start()
    try:
        with pytest.raises((CorruptData, DecompressionTooLarge)):
            decompress(codec, lie, CAP_BYTES)
        _, peak_traced = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_traced < MIB
    assert peak_resident_bytes() - resident < 2 * MIB


def test_a_snappy_block_that_claims_less_than_the_cap_but_more_than_it_can_hold_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match="claims"):
            decompress(SNAPPY, b"\xff\xff\xff\x03" + b"\0" * 20, CAP_BYTES)
        _, peak_traced = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_traced < MIB


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_in_a_batch_is_too_large_a_message(codec: int) -> None:
    batch = build_batch([Record(value=bytes(16 * MIB))], compression=codec)
    with pytest.raises(InvalidBatch) as raised:
        list(iter_records(batch, max_decompressed_bytes=CAP_BYTES))
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert len(list(iter_records(batch, max_decompressed_bytes=17 * MIB))) == 1


def test_many_records_of_a_bomb_are_counted_by_their_bytes() -> None:
    # Seven bytes a record, and gzip makes a thousandth of it: the cap bounds the records as well.
    content = gzip.compress(b"\x0c\0\0\0\1\1\0" * 2_000_000)
    batch = with_content(build_batch([Record()]), content, codec=GZIP, count=2_000_000)
    with pytest.raises(InvalidBatch):
        next(iter_records(batch, max_decompressed_bytes=MIB))
