"""The checks of a produced batch by a topic's configuration."""

from __future__ import annotations

import pytest
from kwire_protocol import compression
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import LOG_APPEND_TIME, BatchHeader, Record, build_batch, iter_records

from kwire.replicas.validation import InvalidRecords, TopicRules, check_produced

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def check(batch: bytes, rules: TopicRules, *, version: int = 9) -> tuple[memoryview, BatchHeader]:
    return check_produced(memoryview(bytearray(batch)), rules, version=version, now_ms=NOW_MS)


def refusal(batch: bytes, rules: TopicRules, *, version: int = 9) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        check(batch, rules, version=version)
    return refused.value


def batch_of(*records: Record, codec: int = compression.NONE) -> bytes:
    return build_batch(list(records), compression=codec)


def test_a_batch_beyond_max_message_bytes_is_too_large() -> None:
    batch = batch_of(Record(timestamp=NOW_MS, value=b"x" * 1000))
    assert check(batch, TopicRules(max_message_bytes=len(batch)))[1].records_count == 1
    assert refusal(batch, TopicRules(max_message_bytes=len(batch) - 1)).code == ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_version_7() -> None:
    batch = batch_of(Record(timestamp=NOW_MS, value=b"x"), codec=compression.ZSTD)
    assert refusal(batch, TopicRules(), version=6).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    check(batch, TopicRules(), version=7)


def test_a_compacted_topic_names_the_records_without_a_key() -> None:
    batch = batch_of(Record(timestamp=NOW_MS, key=b"k"), Record(timestamp=NOW_MS), Record(timestamp=NOW_MS))
    error = refusal(batch, TopicRules(compacted=True))
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [record.batch_index for record in error.record_errors] == [1, 2]
    assert "index 1: Compacted topic" in str(error)
    check(batch, TopicRules())


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
def test_a_timestamp_too_far_in_the_future_is_blamed_on_its_record(codec: int) -> None:
    rules = TopicRules(timestamp_after_max_ms=1000)
    batch = batch_of(Record(timestamp=NOW_MS), Record(timestamp=NOW_MS + 1001), codec=codec)
    error = refusal(batch, rules)
    assert isinstance(error, InvalidRecords)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [record.batch_index for record in error.record_errors] == [1]
    check(batch_of(Record(timestamp=NOW_MS + 1000)), rules)


def test_a_timestamp_too_far_in_the_past_is_refused_where_the_topic_bounds_it() -> None:
    batch = batch_of(Record(timestamp=NOW_MS - 2 * DAY_MS))
    check(batch, TopicRules())
    assert refusal(batch, TopicRules(timestamp_before_max_ms=DAY_MS)).code == ErrorCode.INVALID_TIMESTAMP


def test_a_topic_that_stamps_its_records_does_not_look_at_their_time() -> None:
    batch = batch_of(Record(timestamp=NOW_MS + 10 * DAY_MS))
    check(batch, TopicRules(timestamp_type=LOG_APPEND_TIME, timestamp_after_max_ms=1000))


def test_a_topic_with_a_codec_of_its_own_stores_batches_in_it() -> None:
    records = [Record(delta, NOW_MS + delta, b"k", b"v" * 100, [("h", b"1")]) for delta in range(50)]
    batch = build_batch(records, producer_id=5, producer_epoch=1, base_sequence=7)
    converted, header = check(batch, TopicRules(compression=compression.LZ4))
    assert header.compression == compression.LZ4
    assert header.size_in_bytes == len(converted) < len(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 7)
    assert [(it.timestamp, it.value) for it in iter_records(converted)] == [(it.timestamp, it.value) for it in records]


def test_a_batch_already_in_the_topics_codec_is_left_as_it_is() -> None:
    batch = batch_of(Record(timestamp=NOW_MS, value=b"x" * 100), codec=compression.GZIP)
    assert bytes(check(batch, TopicRules(compression=compression.GZIP))[0]) == batch


def test_nothing_in_place_of_a_batch_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        check_produced(None, TopicRules(), version=9, now_ms=NOW_MS)
    assert refused.value.code == ErrorCode.INVALID_RECORD
