"""The frames of a hostile or broken peer: requests that are changed, cut, or have wrong lengths, and other bytes.

Everything follows from a seed, so that a frame that found something can be made again.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Sequence

import attrs
import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard
from crc32c import crc32c
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from testkit.raw.client import framed, request_frame
from testkit.raw.fuzz.requests import RequestMaker, TopicNames, served_entries, some_batch

CORRELATION_ID = 0x5EED
MUTANTS_PER_REQUEST = 3
EXTREMES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x7f\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80",
    b"\x00",
    b"\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
)


@attrs.frozen
class Attack:
    """Bytes to send. When they are not whole frames, nothing can follow them but the end of the connection."""

    kind: str
    data: bytes
    is_whole: bool = True


class FrameMaker:
    """An endless, repeatable supply of attacks."""

    def __init__(self, seed: int, names: TopicNames, *, requests_per_version: int = 12) -> None:
        self._chance = random.Random(seed)
        self._names = names
        maker = RequestMaker(seed + 1, names)
        self._requests = [
            request_frame(maker.request(entry, version), version, correlation_id=CORRELATION_ID)
            for entry in served_entries()
            for version in entry.message.versions
            for _ in range(requests_per_version)
        ]
        self._kinds: Sequence[Callable[[], Attack]] = self._weighed(
            (self.whole, 90),
            (self.bent, 50),
            (self.lying_count, 14),
            (self.random_body, 8),
            (self.unknown_api, 8),
            (self.spoilt_batch, 24),
            (self.garbage, 2),
            (self.lying_size, 2),
            (self.half, 2),
        )

    @staticmethod
    def _weighed(*kinds: tuple[Callable[[], Attack], int]) -> list[Callable[[], Attack]]:
        return [kind for kind, weight in kinds for _ in range(weight)]

    def attack(self) -> Attack:
        return self._chance.choice(self._kinds)()

    def whole(self) -> Attack:
        return Attack("whole", self._chance.choice(self._requests))

    def bent(self) -> Attack:
        """A request with a few bytes changed, removed or inserted; its size is right again."""
        chance = self._chance
        body = bytearray(chance.choice(self._requests)[4:])
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            position = chance.randrange(len(body))
            match chance.randrange(4):
                case 0:
                    body[position] = chance.randrange(256)
                case 1:
                    body[position] ^= 1 << chance.randrange(8)
                case 2:
                    del body[position : position + chance.choice([1, 1, 2, 4, 50])]
                    body = body or bytearray(1)
                case _:
                    body[position:position] = chance.choice(EXTREMES)
        return Attack("bent", framed(body))

    def lying_count(self) -> Attack:
        """A request with an extreme number written over some position after the header's fixed part."""
        chance = self._chance
        body = bytearray(chance.choice(self._requests)[4:])
        extreme = chance.choice(EXTREMES)
        position = chance.randrange(min(8, len(body) - 1), len(body))
        body[position : position + len(extreme)] = extreme
        return Attack("lying count", framed(body))

    def random_body(self) -> Attack:
        chance = self._chance
        header = chance.choice(self._requests)[4 : 4 + chance.choice([4, 8, 14, 16])]
        return Attack("random body", framed(header + chance.randbytes(chance.choice([0, 1, 10, 100, 1000]))))

    def unknown_api(self) -> Attack:
        chance = self._chance
        body = bytearray(chance.choice(self._requests)[4:])
        if chance.random() < 0.5:
            struct.pack_into(">h", body, 0, chance.choice([-1, 4, 5, 6, 7, 70, 71, 76, 93, 1000, 2**15 - 1, -(2**15)]))
        else:
            struct.pack_into(">h", body, 2, chance.choice([-1, -(2**15), 19, 20, 100, 2**15 - 1]))
        return Attack("unknown api", framed(body))

    def spoilt_batch(self) -> Attack:
        """A Produce that is right in everything but its records, whose CRC is mostly right."""
        chance = self._chance
        batch = bytearray(some_batch(chance))
        for _ in range(chance.choice([1, 1, 2, 5])):
            match chance.randrange(5):
                case 0:
                    batch[chance.randrange(len(batch))] = chance.randrange(256)
                case 1:
                    position, form = chance.choice([(8, "i"), (23, "i"), (57, "i"), (53, "i"), (43, "q"), (0, "q")])
                    bits = 63 if form == "q" else 31
                    number = chance.choice([-1, 0, 1, 2**bits - 1, -(2**bits), len(batch), len(batch) - 13])
                    struct.pack_into(">" + form, batch, position, number)
                case 2 if len(batch) > 70:
                    del batch[chance.randrange(61, len(batch)) :]
                case 3:
                    batch += chance.randbytes(chance.choice([1, 12, 17, 61]))
                case _:
                    struct.pack_into(">h", batch, 21, chance.choice([1, 2, 3, 4, 5, 7, 8, 16, 32, 64, -1]))
        if chance.random() < 0.8:
            batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        return Attack("spoilt batch", produce_frame(chance.choice(self._names.topics), bytes(batch)))

    def garbage(self) -> Attack:
        data = self._chance.randbytes(self._chance.choice([1, 3, 4, 5, 100, 5000]))
        return Attack("garbage", self._chance.choice([data, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(64)]), False)

    def lying_size(self) -> Attack:
        chance = self._chance
        request = chance.choice(self._requests)
        size = chance.choice([-1, -(2**31), 0, 1, 3, 2**31 - 1, 100 * 1024 * 1024 + 1, len(request) + 100])
        return Attack("lying size", size.to_bytes(4, "big", signed=True) + request[4:], False)

    def half(self) -> Attack:
        request = self._chance.choice(self._requests)
        return Attack("half", request[: self._chance.randrange(1, len(request))], False)


def produce_frame(topic: str, records: bytes, *, acks: int = 1, version: int = 9) -> bytes:
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)])]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)
    return request_frame(request, version, correlation_id=CORRELATION_ID)


def compressed_bombs(content_bytes: int) -> dict[str, bytes]:
    """Returns a batch for each codec whose records unfold to about `content_bytes`; each is a small produce request."""
    piece = bytes(1 << 20)
    pieces = content_bytes // len(piece)
    stream = zstandard.ZstdCompressor().compressobj()
    payloads = {
        "gzip": (1, gzip.compress(piece) * pieces),
        "snappy": (
            2,
            b"\x82SNAPPY\0" + bytes(8) + framed(bytes(cramjam.snappy.compress_raw(piece))) * min(pieces, 20),
        ),
        "raw snappy": (2, bytes(cramjam.snappy.compress_raw(bytes(16 << 20)))),
        "lying raw snappy": (2, b"\xff\xff\xff\xff\x0f" + bytes(64)),
        "lz4": (3, bytes(lz4.frame.compress(bytes(128 << 20)))),
        "zstd": (4, b"".join(stream.compress(piece) for _ in range(pieces)) + stream.flush()),
        "zstd frames": (4, zstandard.ZstdCompressor().compress(piece) * pieces),
    }
    return {name: _batch_around(codec, payload) for name, (codec, payload) in payloads.items()}


def _batch_around(codec: int, payload: bytes) -> bytes:
    batch = bytearray(build_batch([Record(key=b"k")]))[:61] + payload
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)
