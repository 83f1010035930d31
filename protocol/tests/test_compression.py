"""The codecs: round trips, every framing that Kafka's Java readers take, cut and spoilt streams."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    XERIAL_MAGIC,
    ZSTD,
    CorruptData,
    DecompressionTooLarge,
    UnknownCodec,
    compress,
    decompress,
)

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
COMPRESSING = CODECS[1:]
TEXT = b"all work and no play makes jack a dull boy " * 5000
NOISE = random.Random(1).randbytes(200_000)


@given(st.binary(max_size=5000), st.sampled_from(CODECS))
def test_what_is_compressed_comes_back(data: bytes, codec: int) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [TEXT, NOISE, b""], ids=["text", "noise", "nothing"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_goes_in(codec: int, data: bytes, kind: type) -> None:
    squeezed = compress(codec, kind(data))
    assert decompress(codec, kind(squeezed), len(data)) == data
    if data is TEXT and codec != NONE:
        assert len(squeezed) < len(data) / 8


@pytest.mark.parametrize("codec", CODECS)
def test_the_cap_is_exact(codec: int) -> None:
    for data in (TEXT, NOISE):
        squeezed = compress(codec, data)
        assert decompress(codec, squeezed, len(data)) == data
        for cap in (0, 1, 1000, len(data) - 1):
            with pytest.raises(DecompressionTooLarge, match=str(cap)):
                decompress(codec, squeezed, cap)


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_unknown_codecs_are_named(codec: int) -> None:
    with pytest.raises(UnknownCodec, match=str(codec)):
        decompress(codec, b"", 1)
    with pytest.raises(UnknownCodec, match=str(codec)):
        compress(codec, b"")


@pytest.mark.parametrize("codec", COMPRESSING)
def test_levels_change_the_size_and_not_the_content(codec: int) -> None:
    data = b"".join(b'{"id": %d, "name": "%x"}' % (i, i * i * 7919) for i in range(5000))
    quick, small = compress(codec, data, 1), compress(codec, data, 19 if codec == ZSTD else 9)
    assert decompress(codec, quick, len(data)) == decompress(codec, small, len(data)) == data
    assert codec == SNAPPY or len(small) < len(quick)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_stream_cut_at_any_length_is_corrupt(codec: int) -> None:
    squeezed = compress(codec, TEXT[:2000] + NOISE[:2000])
    for size in range(len(squeezed)):
        # A stream of snappy blocks has no end mark: without its blocks it is an empty one.
        if codec == SNAPPY and size == 16:
            continue
        with pytest.raises(CorruptData):
            decompress(codec, squeezed[:size], 10_000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_spoilt_stream_is_corrupt_or_still_within_the_cap(codec: int) -> None:
    squeezed = compress(codec, TEXT[:300] + NOISE[:300])
    chance = random.Random(codec)
    corrupt = 0
    for position in range(len(squeezed)):
        for byte in (0, 0xFF, chance.randrange(256)):
            spoilt = bytearray(squeezed)
            spoilt[position] = byte
            try:
                assert len(decompress(codec, spoilt, 5000)) <= 5000
            except (CorruptData, DecompressionTooLarge):
                corrupt += 1
    assert corrupt


@given(st.binary(max_size=300), st.sampled_from(COMPRESSING))
def test_any_bytes_are_content_or_corrupt(data: bytes, codec: int) -> None:
    try:
        assert len(decompress(codec, data, 5000)) <= 5000
    except (CorruptData, DecompressionTooLarge):
        return


def test_gzip_members_one_after_another_are_one_content_and_what_is_no_member_is_ignored() -> None:
    squeezed = gzip.compress(b"one") + gzip.compress(b"") + compress(GZIP, b"two")
    assert decompress(GZIP, squeezed, 6) == b"onetwo"
    assert decompress(GZIP, squeezed + b"junk", 6) == b"onetwo"
    assert decompress(GZIP, squeezed + b"\x1f\x8bjunk", 6) == b"onetwo"
    with pytest.raises(CorruptData):
        decompress(GZIP, squeezed + compress(GZIP, b"three")[:-4], 60)
    with pytest.raises(DecompressionTooLarge):
        decompress(GZIP, squeezed, 5)


def test_a_wrong_gzip_checksum_is_corrupt() -> None:
    squeezed = bytearray(compress(GZIP, TEXT))
    squeezed[-8] ^= 1
    with pytest.raises(CorruptData):
        decompress(GZIP, squeezed, len(TEXT))


def test_both_framings_of_snappy_are_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(SNAPPY, raw, len(TEXT)) == TEXT
    framed = compress(SNAPPY, TEXT)
    assert framed[:16] == XERIAL_MAGIC + bytes.fromhex("0000000100000001")
    assert decompress(SNAPPY, framed, len(TEXT)) == TEXT
    assert decompress(SNAPPY, framed + compress(SNAPPY, b"more"), len(TEXT) + 4) == TEXT + b"more"
    large = XERIAL_MAGIC + bytes.fromhex("0000000100000001") + len(raw).to_bytes(4, "big") + raw
    assert decompress(SNAPPY, large, len(TEXT)) == TEXT  # blocks of any size


def test_an_lz4_frame_is_read_linked_or_not_and_with_all_its_checksums() -> None:
    for linked in (True, False):
        for checksums in (True, False):
            frame = lz4.frame.compress(
                TEXT, block_linked=linked, content_checksum=checksums, block_checksum=checksums, store_size=checksums
            )
            assert decompress(LZ4, frame, len(TEXT)) == TEXT
            if checksums:
                spoilt = bytearray(frame)
                spoilt[-1] ^= 1
                with pytest.raises(CorruptData):
                    decompress(LZ4, spoilt, len(TEXT))


def test_lz4_ends_with_its_first_frame() -> None:
    assert decompress(LZ4, compress(LZ4, b"one") + compress(LZ4, b"two"), 10) == b"one"
    assert decompress(LZ4, compress(LZ4, b"one") + b"junk", 10) == b"one"


def test_lz4_is_written_in_blocks_that_do_not_lean_on_each_other() -> None:
    info = lz4.frame.get_frame_info(compress(LZ4, TEXT))
    assert not info["block_linked"]
    assert info["block_size_id"] == lz4.frame.BLOCKSIZE_MAX64KB


def test_zstd_frames_with_and_without_size_and_skippable_ones_are_one_content() -> None:
    sized = zstandard.ZstdCompressor().compress(TEXT)
    stream = zstandard.ZstdCompressor().compressobj()
    unsized = stream.compress(TEXT) + stream.flush()
    checked = zstandard.ZstdCompressor(write_checksum=True, write_dict_id=False).compress(TEXT)
    skippable = bytes.fromhex("5a2a4d1803000000") + b"abc"
    assert zstandard.frame_content_size(unsized) == -1
    frames = skippable + sized + unsized + checked + skippable + compress(ZSTD, b"")
    assert decompress(ZSTD, frames, 3 * len(TEXT)) == 3 * TEXT
    with pytest.raises(DecompressionTooLarge):
        decompress(ZSTD, frames, 3 * len(TEXT) - 1)
    with pytest.raises(CorruptData):
        decompress(ZSTD, frames + b"junk", 3 * len(TEXT))
    for cut in range(1, len(checked)):
        with pytest.raises(CorruptData):
            decompress(ZSTD, sized + checked[:-cut], 3 * len(TEXT))


def test_zstd_blocks_of_every_type_are_counted_right() -> None:
    # raw blocks of noise, a run of zeros, compressed text
    data = NOISE + bytes(300_000) + TEXT
    for level in (1, 19):
        assert decompress(ZSTD, compress(ZSTD, data, level), len(data)) == data


def test_the_codecs_load_when_they_are_needed() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, kwire_protocol.records; print({'lz4', 'zstandard', 'cramjam'} & {n for n in sys.modules})",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "set()\n"
