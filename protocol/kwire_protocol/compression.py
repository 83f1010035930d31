"""The codecs of record batches, with a limit on the decompressed size.

A few bytes can claim or become gigabytes. So nothing is allocated by a claimed length before it is checked against the
limit, and streams are decompressed in pieces of doubling size, so that memory follows the real output.

Payloads are accepted as by Kafka's Java readers:

* gzip: one or more members; bytes after the last member that do not begin another are ignored.
* snappy: blocks in the framing of xerial's snappy-java (which Java, and most clients, write), or one raw block (which
  others write). The first eight bytes distinguish them.
* lz4: one frame; what follows it is ignored. Written with independent blocks: Kafka's Java reader refuses linked ones.
* zstd: one or more frames, with or without the content's size in the header, and skippable ones.

Each library is loaded on first use: most brokers need one or none of them.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_GZIP_MAGIC = b"\x1f\x8b\x08"  # and its only method, deflate

_FIRST_PIECE_BYTES = 64 * 1024
_LARGEST_PIECE_BYTES = 4 * 1024 * 1024

# snappy-java's stream: this magic, then its version and the lowest version able to read it, both big-endian 1.
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
# The densest element of a snappy block makes 64 bytes of 3, so a larger claim is false.
_SNAPPY_MOST_BYTES_PER_BYTE = 22

# libzstd's own default, and the window that level 22 needs (128 MiB); more is refused.
_ZSTD_MOST_WINDOW_BYTES = 1 << 27
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_RUN = 0b010  # a block of one byte and its number of repetitions


class CorruptData(Exception):
    """The bytes are not what their codec writes, or are cut short."""


class DecompressionTooLarge(Exception):
    """The content is longer than the caller allows."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the content is larger than {max_bytes} bytes")


class UnknownCodec(Exception):
    """A codec number that Kafka does not define (5 to 7 in a batch's attributes)."""

    def __init__(self, codec: int) -> None:
        super().__init__(f"unknown compression type {codec}")


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    """Returns the content of `data`.

    Raises DecompressionTooLarge if it is longer than `max_bytes`, CorruptData if it is no such stream, UnknownCodec.
    """
    match codec:
        case 0:
            if len(data) > max_bytes:
                raise DecompressionTooLarge(max_bytes)
            return bytes(data)
        case 1:
            return _gunzip(data, max_bytes)
        case 2:
            return _unsnappy(data, max_bytes)
        case 3:
            return _unlz4(data, max_bytes)
        case 4:
            return _unzstd(data, max_bytes)
        case _:
            raise UnknownCodec(codec)


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Returns `data` in the framing of Kafka's own producer; `level` is the codec's own (snappy has none)."""
    match codec:
        case 0:
            return bytes(data)
        case 1:
            deflater = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
            return deflater.compress(data) + deflater.flush()
        case 2:
            return _snappy(data)
        case 3:
            import lz4.frame  # type: ignore[import-untyped]

            return bytes(
                lz4.frame.compress(
                    bytes(data),
                    compression_level=0 if level is None else level,
                    block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                    block_linked=False,
                    store_size=False,
                )
            )
        case 4:
            import zstandard

            return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
        case _:
            raise UnknownCodec(codec)


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    room = max_bytes
    rest: Buffer = data
    while True:
        inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            piece = inflater.decompress(rest, room + 1)
        except zlib.error as error:
            raise CorruptData(str(error)) from None
        if len(piece) > room:
            raise DecompressionTooLarge(max_bytes)
        if not inflater.eof:
            raise CorruptData("the gzip stream is cut short")
        pieces.append(piece)
        room -= len(piece)
        rest = inflater.unused_data
        if rest[:3] != _GZIP_MAGIC:
            break
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _unsnappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != XERIAL_MAGIC:
        return _unsnappy_block(view, max_bytes, max_bytes)
    pieces: list[bytes] = []
    room = max_bytes
    pos = len(_XERIAL_HEADER)
    end = len(view)
    if end < pos:
        raise CorruptData("the snappy header is cut short")
    while pos < end:
        if bytes(view[pos : pos + 8]) == XERIAL_MAGIC:  # streams one after another
            pos += len(_XERIAL_HEADER)
            if pos > end:
                raise CorruptData("the snappy header is cut short")
            continue
        block_end = pos + 4 + int.from_bytes(view[pos : pos + 4], "big")
        if pos + 4 > end or block_end > end:
            raise CorruptData("a snappy block is cut short")
        piece = _unsnappy_block(view[pos + 4 : block_end], room, max_bytes)
        pieces.append(piece)
        room -= len(piece)
        pos = block_end
    return b"".join(pieces)


def _unsnappy_block(block: memoryview, room: int, max_bytes: int) -> bytes:
    import cramjam

    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise CorruptData("a snappy block begins with no length")
    if size > _SNAPPY_MOST_BYTES_PER_BYTE * len(block):
        raise CorruptData(f"a snappy block of {len(block)} bytes claims {size}")
    if size > room:
        raise DecompressionTooLarge(max_bytes)
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptData(str(error)) from None


def _unlz4(data: Buffer, max_bytes: int) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    first: list[Buffer] = [data]

    def take(size: int) -> bytes:
        try:
            piece: bytes = decompressor.decompress(first.pop() if first else b"", max_length=size)
        except (RuntimeError, EOFError, ValueError) as error:
            raise CorruptData(str(error)) from None
        if not piece and not decompressor.eof:
            raise CorruptData("the lz4 frame is cut short")
        return piece

    return _take_all(take, max_bytes, lambda: decompressor.eof)


def _unzstd(data: Buffer, max_bytes: int) -> bytes:
    import zstandard

    # zstandard's reader takes the end of its input for the end of the content, even in the middle of a frame.
    _check_zstd_frames(memoryview(data))
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MOST_WINDOW_BYTES)
    reader: Any = decompressor.stream_reader(data, read_across_frames=True)

    def take(size: int) -> bytes:
        try:
            piece: bytes = reader.read(size)
        except zstandard.ZstdError as error:
            raise CorruptData(str(error)) from None
        return piece

    return _take_all(take, max_bytes, lambda: False)


def _check_zstd_frames(data: memoryview) -> None:
    """Raises unless `data` is whole frames (RFC 8878), by their headers and blocks' lengths."""
    pos = 0
    end = len(data)
    while True:
        magic = int.from_bytes(data[pos : pos + 4], "little")
        if magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
            pos += 8 + int.from_bytes(data[pos + 4 : pos + 8], "little")
        elif magic == _ZSTD_MAGIC and pos + 4 < end:
            descriptor = data[pos + 4]
            single_segment = descriptor >> 5 & 1
            content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
            pos += 6 - single_segment + (0, 1, 2, 4)[descriptor & 3] + content_size
            last = 0
            while not last:
                block = int.from_bytes(data[pos : pos + 3], "little")
                last = block & 1
                pos += 4 if block & 0b110 == _ZSTD_RUN else 3 + (block >> 3)
                if pos > end:
                    raise CorruptData("the zstd frame is cut short")
            pos += descriptor & 4  # the checksum
        else:
            raise CorruptData(f"no zstd frame begins with {magic:#x}")
        if pos == end:
            return
        if pos > end:
            raise CorruptData("the zstd frame is cut short")


def _take_all(take: Callable[[int], bytes], max_bytes: int, finished: Callable[[], bool]) -> bytes:
    """Collects what `take(size)` returns, in pieces of doubling size, until it returns nothing or has finished."""
    pieces: list[bytes] = []
    room = max_bytes
    size = _FIRST_PIECE_BYTES
    while not finished():
        piece = take(min(size, room + 1))
        if not piece:
            break
        if len(piece) > room:
            raise DecompressionTooLarge(max_bytes)
        pieces.append(piece)
        room -= len(piece)
        size = min(2 * size, _LARGEST_PIECE_BYTES)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
