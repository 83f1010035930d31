"""Produce requests: plain ones, and those that differ from plain ones in one thing."""

from __future__ import annotations

import struct
from random import Random

import attrs
from crc32c import crc32c
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import NULL_UUID

from testkit.fast_paths.topics import NAMES, id_of
from testkit.fast_paths.twins import Twins
from testkit.raw.client import request_frame

_CRC_AT, _ATTRIBUTES_AT = 17, 21
NO_PRODUCER = -1


@attrs.define
class Sent:
    """The last epoch and sequence of a producer in a partition."""

    epoch: int = 0
    next_sequence: int = 0


@attrs.define
class Plan:
    """The fields that all requests of a producer have in common."""

    version: int
    name: str
    index: int
    acks: int
    client_id: str
    transactional_id: str | None
    has_another: bool


@attrs.define(eq=False)
class Producing:
    """A producer. It changes its plan from time to time."""

    random: Random
    twins: Twins
    producers: dict[tuple[int, str, int], Sent]
    _plan: Plan | None = None

    def frame(self) -> bytes:
        random = self.random
        if self._plan is None or random.random() < 0.1:
            self._plan = Plan(
                version=random.choice((9, 10, 11, 12, 12, 13, 13, 13, *((3, 7, 8) if self._seldom() else ()))),
                name=random.choice((*NAMES, *["plain"] * 20, *["busy"] * 5)),
                index=random.choice((0, 0, 0, 1, *((2, -1, 1 << 30) if self._seldom() else ()))),
                acks=random.choice((-1, -1, 1, 1, 0, *((2, -2) if self._seldom() else ()))),
                client_id=random.choice(("one", "one", "two")),
                transactional_id="t" if self._seldom() else None,
                has_another=self._seldom(),
            )
        plan = self._plan
        name, index = plan.name, plan.index
        data = [PartitionProduceData(index, self._records(name, index))]
        if plan.has_another:
            data.append(PartitionProduceData(1 - index if index in (0, 1) else 0, self._records(name, index)))
        by_id = plan.version >= 13
        topic = TopicProduceData("" if by_id else name, id_of(self.twins, name) if by_id else NULL_UUID, data)
        request = ProduceRequest(plan.transactional_id, plan.acks, 1000, [topic])
        correlation_id = random.randrange(-(1 << 31), 1 << 31)
        return request_frame(request, plan.version, correlation_id=correlation_id, client_id=plan.client_id)

    def _seldom(self) -> bool:
        return self.random.random() < 0.08

    def _records(self, name: str, index: int) -> bytes | None:
        random = self.random
        batch = self._batch(name, index)
        if random.random() > 0.15:
            return batch
        kind = random.randrange(11)
        if kind == 0:
            return None
        if kind == 1:
            return b""
        if kind == 2:
            return batch + self._batch(name, index)
        if kind == 3:
            return batch + b"\0" * random.randrange(1, 70)
        if kind == 4:
            return batch[: random.randrange(len(batch))]
        damaged = bytearray(batch)
        if kind == 5:
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        elif kind == 6:
            damaged[_CRC_AT] ^= 1
        elif kind == 7:
            struct.pack_into(">q", damaged, 0, random.choice((1, 7)))
        else:
            # Other attributes, last offset delta, or count, under a right CRC.
            at, code, values = random.choice(
                (
                    (_ATTRIBUTES_AT, ">h", (5, 7, 8, 9, 16, 32, 48, 64, 128, -1)),
                    (23, ">i", (-1, 0, 1, 5)),
                    (57, ">i", (-1, 0, 1, 5, 1 << 30)),
                    (43, ">q", (-1, 0, 5)),
                    (53, ">i", (-1, 0, 3)),
                )
            )
            struct.pack_into(code, damaged, at, random.choice(values))
            struct.pack_into(">I", damaged, _CRC_AT, crc32c(bytes(damaged[_ATTRIBUTES_AT:])))
        return bytes(damaged)

    def _batch(self, name: str, index: int) -> bytes:
        random = self.random
        now_ms = self.twins.plain.clock.time_ms
        count = random.choice((1, 1, 1, 2, 5))
        size = random.choice((0, 5, 60, 100, 130, *((17_000, 300) if self._seldom() else ())))
        timestamp = now_ms - random.choice(
            (0, 0, 0, 1000, *((-4000, -6000, -3_700_000, 200_000) if self._seldom() else ()))
        )
        key = None if random.random() < 0.5 else b"k%d" % random.randrange(9)
        records = [Record(key=key, value=random.randbytes(size), timestamp=timestamp) for _ in range(count)]
        codec = random.choice((0, 0, 0, 0, 1, 2, 3, 4))
        producer_id = random.choice((NO_PRODUCER, NO_PRODUCER, 1, 1, 2))
        if producer_id == NO_PRODUCER:
            return build_batch(records, compression=codec, transactional=self._seldom())
        sent = self.producers.setdefault((producer_id, name, index), Sent())
        sequence, epoch = sent.next_sequence, sent.epoch
        if random.random() < 0.1:
            sequence = max(0, sequence + random.choice((-2, -1, 1, 7)))
        else:
            sent.next_sequence += count
        if random.random() < 0.03:
            epoch += random.choice((-1, 1))
        if random.random() < 0.01:
            sent.epoch, sent.next_sequence = sent.epoch + 1, 0
        return build_batch(
            records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=max(epoch, 0),
            base_sequence=sequence,
            transactional=self._seldom(),
        )
