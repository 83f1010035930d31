"""Checks of answers that look at some bytes instead of decoding them.

As long as there are no errors, the error codes of an answer stand at places that depend on the request alone. So a
check is made from two samples, an answer without errors and one with nothing but errors: the codes are where the two
differ. Looking at these places costs a slice and a comparison, however many partitions there are; decoding would make
the load dearer than the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from kwire_protocol.headers import response_head
from kwire_protocol.messages.api_versions import ApiVersionsResponse
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kwire_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kwire_protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kwire_protocol.messages.write_share_group_state import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from kwire_protocol.records import iter_headers
from kwire_protocol.wire import ApiMessage, Uuid, Writer

from benchmarks.load.requests import VERSIONS, fetch

Check = Callable[[bytearray, int, int], None]
"""Gets a buffer, where an answer begins in it (behind its size) and that size; raises BadAnswer."""

_ERROR = -1  # UNKNOWN_SERVER_ERROR has all bits set, and so shows both bytes of a code
_CORRELATION_BYTES = 4


class BadAnswer(Exception):
    """The broker answered with an error, too little, or not at all."""


def check_produce(topic: str, partitions: int) -> Check:
    def answer(code: int) -> ProduceResponse:
        parts = [PartitionProduceResponse(error_code=code) for _ in range(partitions)]
        return ProduceResponse([TopicProduceResponse(topic, partition_responses=parts)])

    return _check(answer)


def check_fetch(topic: str, at_least_bytes: int) -> Check:
    """There must be records, too: so many bytes of them."""
    return _check(lambda code: _fetched(topic, code, b""), at_least_bytes)


def check_list_offsets(topic: str, partitions: int) -> Check:
    def answer(code: int) -> ListOffsetsResponse:
        parts = [ListOffsetsPartitionResponse(error_code=code) for _ in range(partitions)]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic, parts)])

    return _check(answer)


def check_api_versions() -> Check:
    return _check(lambda code: ApiVersionsResponse(error_code=code), at_least_bytes=1)


def check_consumer_heartbeat(member_id: str) -> Check:
    """To a heartbeat of a member to which nothing has happened, or of another one whose id is as long."""
    return _check(lambda code: ConsumerGroupHeartbeatResponse(error_code=code, member_id=member_id))


def check_write_share_state(topic_id: Uuid) -> Check:
    """Returns a check of the answer for one partition, whichever."""

    def answer(code: int) -> WriteShareGroupStateResponse:
        return WriteShareGroupStateResponse([WriteStateResult(topic_id, [PartitionResult(error_code=code)])])

    return _check(answer)


def check_nothing(buffer: bytearray, start: int, size: int) -> None:
    """Does nothing, for answers without an error code."""


def _check(answer: Callable[[int], ApiMessage], at_least_bytes: int | None = None) -> Check:
    """An answer must have the size of the sample or, with `at_least_bytes`, be longer by so much or more."""
    sample, bad = _encoded(answer(0)), _encoded(answer(_ERROR))
    differ = [place for place, (good, other) in enumerate(zip(sample, bad, strict=True)) if good != other]
    low = differ[1::2]  # the low byte of a code is never 0: codes are 1 to some 130, or -1
    steps = {after - before for before, after in pairwise(low)} or {1}
    first, stop, none = low[0], low[-1] + 1, bytes(len(low))
    step = steps.pop() if len(steps) == 1 else 0
    least = len(sample) + (at_least_bytes or 0)
    most = len(sample) if at_least_bytes is None else 1 << 31
    name = type(answer(0)).__name__

    def check(buffer: bytearray, start: int, size: int) -> None:
        found = buffer[start + first : start + stop : step] if step else bytes(buffer[start + place] for place in low)
        if found != none:
            raise BadAnswer(f"{name}: error codes {sorted(set(found) - {0})}")
        if not least <= size <= most:
            raise BadAnswer(f"{name}: {size} bytes instead of {least}: {bytes(buffer[start : start + 100])!r}")

    return check


class Tailing:
    """A Fetch of one partition, whose offset is written over in place, and what is to be seen in its answers."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.frame = bytearray(fetch(topic, partition, 0))
        self._offset = _first_difference(self.frame, fetch(topic, partition, -1))
        self._check = check_fetch(topic, 0)
        self._records = _first_difference(_encoded(_fetched(topic, 0, b"")), _encoded(_fetched(topic, 0, b"-")))
        self.seek(offset)

    def seek(self, offset: int) -> None:
        self.frame[self._offset : self._offset + 8] = offset.to_bytes(8, "big")

    def batches(self, answer: bytearray) -> list[tuple[int, int]]:
        """Returns (first offset, number of records) of each batch; none when the broker had no records yet."""
        self._check(answer, 0, len(answer))
        at, size, shift = self._records, 0, 0
        while True:  # an unsigned varint, one more than the bytes of records
            byte = answer[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        records = memoryview(answer)[at : at + size - 1]
        return [(header.base_offset, header.records_count) for _, header in iter_headers(records)]


def _fetched(topic: str, code: int, records: bytes) -> FetchResponse:
    part = PartitionData(error_code=code, records=records)
    return FetchResponse(error_code=code, responses=[FetchableTopicResponse(topic, partitions=[part])])


def _encoded(answer: ApiMessage) -> bytes:
    """Header and message, without the size in front."""
    writer = Writer()
    version = VERSIONS[answer.api_key]
    writer.begin_frame(response_head(answer.api_key, version, 0))
    answer.write(writer, version)
    return writer.getvalue()[4:]


def _first_difference(one: bytes | bytearray, other: bytes) -> int:
    return next(place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
