"""Errors in answers: a load that overlooks one measures how quickly a broker fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kwire_protocol.headers import response_head
from kwire_protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kwire_protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kwire_protocol.wire import ApiMessage, Writer

from benchmarks.load.answers import BadAnswer, Check, Tailing, check_fetch, check_list_offsets, check_produce
from benchmarks.load.requests import VERSIONS, decode, encode, numbered, value_batch

OFFSET_OUT_OF_RANGE = 1


def encoded(answer: ApiMessage) -> bytearray:
    writer = Writer()
    version = VERSIONS[answer.api_key]
    writer.begin_frame(response_head(answer.api_key, version, 7))
    answer.write(writer, version)
    return bytearray(writer.getvalue()[4:])


def looked_at(check: Check, answer: ApiMessage) -> None:
    data = encoded(answer)
    check(bytearray(b"something before it") + data + b"and behind", len("something before it"), len(data))


def produced(*codes: int) -> ProduceResponse:
    parts = [PartitionProduceResponse(n, code, 1 << 40, log_start_offset=1 << 35) for n, code in enumerate(codes)]
    return ProduceResponse([TopicProduceResponse("t", partition_responses=parts)])


def listed(*codes: int) -> ListOffsetsResponse:
    parts = [ListOffsetsPartitionResponse(n, code, 1 << 50, 1 << 40, 9) for n, code in enumerate(codes)]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", parts)])


def fetched(code: int = 0, records: bytes = b"", *, of_all: int = 0) -> FetchResponse:
    part = PartitionData(3, code, 1 << 40, 1 << 40, 0, None, None, None, None, -1, records)
    return FetchResponse(0, of_all, 0, [FetchableTopicResponse("t", partitions=[part])])


@pytest.mark.parametrize("partitions", [1, 2, 50])
@pytest.mark.parametrize(("check_of", "answer_of"), [(check_produce, produced), (check_list_offsets, listed)])
def test_an_error_in_any_partition_is_seen(
    check_of: Callable[[str, int], Check], answer_of: Callable[..., ApiMessage], partitions: int
) -> None:
    check = check_of("t", partitions)
    looked_at(check, answer_of(*[0] * partitions))
    for place in range(partitions):
        for code in (OFFSET_OUT_OF_RANGE, -1, 133):
            codes = [0] * partitions
            codes[place] = code
            with pytest.raises(BadAnswer, match="error codes"):
                looked_at(check, answer_of(*codes))


def test_an_answer_about_fewer_partitions_is_seen() -> None:
    with pytest.raises(BadAnswer):
        looked_at(check_produce("t", 3), produced(0, 0))


def test_a_fetch_without_enough_records_is_seen() -> None:
    looked_at(check_fetch("t", 1000), fetched(records=bytes(1000)))
    with pytest.raises(BadAnswer, match="bytes"):
        looked_at(check_fetch("t", 1000), fetched(records=bytes(900)))


def test_an_error_of_a_fetch_or_of_its_partition_is_seen() -> None:
    for answer in (fetched(code=OFFSET_OUT_OF_RANGE), fetched(of_all=OFFSET_OUT_OF_RANGE)):
        with pytest.raises(BadAnswer, match="error codes"):
            looked_at(check_fetch("t", 0), answer)


def test_a_tailing_fetch_moves_on_in_place_and_finds_the_batches() -> None:
    tailing = Tailing("t", 3, 5)
    tailing.seek(1 << 40)
    request = decode_request(bytes(tailing.frame))
    assert request.topics[0].partitions[0].fetch_offset == 1 << 40
    assert tailing.batches(encoded(fetched())) == []
    batch = value_batch(4, 100)
    for copies in (1, 3):  # the length of the records takes two bytes, then more
        assert tailing.batches(encoded(fetched(records=batch * copies))) == [(0, 4)] * copies


def decode_request(frame: bytes) -> FetchRequest:
    from kwire_protocol.headers import read_request_header
    from kwire_protocol.wire import Reader

    reader = Reader(frame[4:])
    read_request_header(reader)
    return FetchRequest.read(reader, VERSIONS[1])


def test_numbered_frames_differ_in_their_correlation_ids_only() -> None:
    frame = encode(FetchRequest(), correlation_id=2)
    assert numbered([frame, frame, frame])[2] == frame
    answer = encoded(produced(0))
    assert decode(answer, 0) == produced(0)
