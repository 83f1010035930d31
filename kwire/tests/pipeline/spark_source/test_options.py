"""The options: the connector's names and defaults; one that is wrong or not supported is an error in one line."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.client.cluster import TopicPartition
from kwire.client.offsets import IsolationLevel
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.options import Bound, SourceOptions, Subscription, parse_source_options

LEAST = {"kafka.bootstrap.servers": "here:9092", "subscribe": "t"}


def parse(*, streaming: bool = False, **given: Any) -> SourceOptions:
    """Parses options; dots are written as __."""
    options = {**LEAST, **{name.replace("__", "."): value for name, value in given.items()}}
    return parse_source_options(
        {name.lower(): value for name, value in options.items() if value != "-"}, streaming=streaming
    )


def test_a_batch_reads_all_there_is_and_a_stream_what_comes() -> None:
    assert (parse().starting.word, parse().ending.word) == (-2, -1)
    assert parse(streaming=True).starting.word == -1


def test_a_time_counts_before_offsets_and_one_for_all_before_one_for_each() -> None:
    each = '{"t": {"0": 7}}'
    assert parse(startingOffsets=each).starting == Bound("startingOffsets", offsets={TopicPartition("t", 0): 7})
    both = parse(startingOffsets=each, startingOffsetsByTimestamp=each).starting
    assert both == Bound("startingOffsetsByTimestamp", times_ms={TopicPartition("t", 0): 7})
    assert parse(startingOffsetsByTimestamp=each, startingTimestamp="9").starting == Bound(
        "startingTimestamp", time_ms=9
    )


def test_the_topics_are_given_by_one_of_three_options() -> None:
    assert parse(subscribe=" a, b ,").subscription == Subscription(topics=frozenset({"a", "b"}))
    assert parse(subscribe="-", subscribePattern="a.*").subscription == Subscription(pattern="a.*")
    assigned = parse(subscribe="-", assign='{"a": [0, 2]}').subscription.assigned
    assert assigned == frozenset({TopicPartition("a", 0), TopicPartition("a", 2)})


def test_every_other_option_has_its_place() -> None:
    found = parse(
        streaming=True,
        failOnDataLoss="FALSE",
        minPartitions="3",
        maxRecordsPerPartition="100",
        maxOffsetsPerTrigger="50",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="2 minutes",
        includeHeaders="true",
        startingOffsetsByTimestampStrategy="latest",
        kafkaConsumer__pollTimeoutMs="700",
        kafka__isolation__level="read_committed",
        kafka__max__partition__fetch__bytes="1000",
        kafka__fetch__max__wait__ms="50",
        kafka__check__crcs="false",
        kafka__client__id="me",
        groupIdPrefix="x",
        kafka__security__protocol="plaintext",
    )
    assert found == SourceOptions(
        bootstrap="here:9092",
        subscription=Subscription(topics=frozenset({"t"})),
        starting=Bound("startingOffsets", word=-1),
        ending=Bound("endingOffsets", word=-1),
        latest_where_no_record_is_so_late=True,
        fail_on_data_loss=False,
        min_partitions=3,
        max_records_per_partition=100,
        max_offsets_per_trigger=50,
        min_offsets_per_trigger=5,
        max_trigger_delay_ms=120_000,
        include_headers=True,
        timeout_s=0.7,
        isolation_level=IsolationLevel.READ_COMMITTED,
        fetch_bytes=1000,
        max_wait_ms=50,
        check_crcs=False,
        client_id="me",
    )


@pytest.mark.parametrize(
    ("text", "ms"), [("7", 7), ("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("1 day", 86_400_000)]
)
def test_a_delay_may_have_a_unit(text: str, ms: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == ms


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka__bootstrap__servers": "-"}, "option kafka.bootstrap.servers is missing"),
        ({"subscribe": "-"}, "none is given"),
        ({"subscribePattern": "x"}, "subscribe and subscribePattern are given"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "-", "subscribePattern": "("}, "no regular expression"),
        ({"subscribe": "-", "subscribePattern": ""}, "is empty"),
        ({"subscribe": "-", "assign": "{}"}, "names no partition"),
        ({"subscribe": "-", "assign": '{"t": [-1]}'}, "-1 is no number of a partition"),
        ({"subscribe": "-", "assign": '["t"]'}, "it is no object"),
        ({"startingOffsets": "first"}, "option startingOffsets cannot be read"),
        ({"startingOffsets": '{"t": {"0": 1.5}}'}, "t-0 has no whole number"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "'x' is no number of a partition"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "-1 is the latest, -2 the earliest"),
        ({"startingOffsets": "latest"}, "startingOffsets is latest (-1): a batch cannot begin there"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "a batch cannot begin there"),
        ({"endingOffsets": "earliest"}, "a batch cannot end there"),
        ({"startingTimestamp": "today"}, "option startingTimestamp is 'today'"),
        ({"minPartitions": "0"}, "a whole number of 1 or more"),
        ({"maxTriggerDelay": "soon"}, "a time such as"),
        ({"failOnDataLoss": "perhaps"}, "one of true, false"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9, is above maxOffsetsPerTrigger, 8"),
        ({"kafka__security__protocol": "SASL_SSL"}, "speaks plain text (PLAINTEXT) only"),
        ({"kafka__sasl__mechanism": "PLAIN"}, "option kafka.sasl.mechanism is not supported yet"),
        ({"kafka__value__deserializer": "x"}, "keys and values are bytes"),
        ({"kafka__linger__ms": "5"}, "option kafka.linger.ms is not supported by the format kwire: leave it out"),
        ({"startingOffset": "earliest"}, "option startingoffset is not supported"),
    ],
)
def test_a_wrong_option_is_an_error_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse(**given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(PipelineError, match=f"option {name} is not for streams"):
        parse(streaming=True, **{name: '{"t": {"0": 1}}' if name != "endingTimestamp" else "5"})
