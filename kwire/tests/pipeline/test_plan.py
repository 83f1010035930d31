"""A plan as a value: the input that it accepts, the values made from it, and its output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.plan import TablePlan, check_plans, table_of
from kwire.pipeline.tables.values import AvroSchemas
from kwire.pipeline.warehouse import CATALOG, Warehouse

AVRO = AvroSchemas('{"type": "record", "name": "r", "fields": []}')


def plan(**options: Any) -> TablePlan:
    return TablePlan(
        **{
            "bootstrap": "127.0.0.1:9092",
            "topic": "orders",
            "warehouse": Warehouse(CATALOG, Path("w"), {}),
            "table": "orders",
            **options,
        }
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"value": "json"},
        {"value": "json", "evolve": True},
        {"value": "json", "schema": "id BIGINT"},
        {"value": "avro", "avro": AVRO},
        {"value": "confluent-avro", "avro": AvroSchemas(AVRO.reader, {7: AVRO.reader})},
        {
            "partition_by": (
                "days(kafka.timestamp)",
                "value.country",
                "bucket(16, value.user_id)",
                "truncate(4, value.n)",
            )
        },
        {"source_options": {"kafka.security.protocol": "SSL", "minPartitions": "8"}},
        {"dead_letter_topic": "orders.bad"},
    ],
)
def test_what_can_be_meant_passes(options: dict[str, Any]) -> None:
    plan(**options).check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": "id BIGINT"}, "--schema and --evolve are for values that are decoded"),
        ({"evolve": True}, "--schema and --evolve are for values that are decoded"),
        ({"avro": AVRO}, "--schema and --evolve are for values that are decoded"),
        ({"value": "json", "avro": AVRO}, "an Avro schema is given, and --value is json"),
        ({"value": "avro"}, "--value avro wants its schema"),
        ({"value": "confluent-avro"}, "--value confluent-avro wants its schema"),
        ({"value": "avro", "avro": AVRO, "evolve": True}, "--evolve is for JSON"),
        ({"partition_by": ("days(",)}, "neither a field nor a transform"),
        ({"partition_by": ("value.x, value.y",)}, "neither a field nor a transform"),
        ({"partition_by": ("value.x) TBLPROPERTIES ('a'='b'",)}, "neither a field nor a transform"),
        ({"partition_by": ("",)}, "neither a field nor a transform"),
        ({"source_options": {"startingOffsets": "latest"}}, "the job sets startingOffsets by itself"),
        ({"source_options": {"STARTINGOFFSETS": "latest"}}, "the job sets STARTINGOFFSETS by itself"),
        ({"source_options": {"startingTimestamp": "1"}}, "the job sets startingTimestamp by itself"),
        ({"source_options": {"maxOffsetsPerTrigger": "1"}}, "the job sets maxOffsetsPerTrigger by itself"),
        ({"source_options": {"failOnDataLoss": "false"}}, "the job sets failOnDataLoss by itself"),
        ({"source_options": {"kafka.isolation.level": "x"}}, "the job sets kafka.isolation.level by itself"),
        ({"source_options": {"kafka.bootstrap.servers": "x:1"}}, "the job sets kafka.bootstrap.servers by itself"),
        ({"source_options": {"kafka.group.id": "g"}}, "Spark's readers are in no group"),
        ({"dead_letter_topic": "orders"}, "--dead-letter-topic orders is the topic that is read"),
    ],
)
def test_what_cannot_be_meant_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        plan(**options).check()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_topics_of_one_table_are_refused() -> None:
    with pytest.raises(PipelineError, match=r"topics a\.b and a-b would both become table a_b"):
        check_plans([plan(topic=name, table=table_of(name, None)) for name in ("a.b", "a-b")])


def test_a_topic_that_is_named_twice_is_refused() -> None:
    with pytest.raises(PipelineError, match="topic orders is named twice"):
        check_plans([plan(), plan()])


def test_a_table_that_is_anothers_errors_table_is_refused() -> None:
    with pytest.raises(PipelineError, match="orders__errors"):
        check_plans([plan(), plan(topic="orders__errors", table="orders__errors")])


def test_dead_letters_of_one_topic_are_not_another_topic_of_the_job() -> None:
    with pytest.raises(PipelineError, match="--dead-letter-topic clicks is a topic that is read"):
        check_plans(
            [plan(dead_letter_topic="clicks"), plan(topic="clicks", table="clicks", dead_letter_topic="clicks")]
        )


def test_a_table_is_named_as_its_topic_is_as_far_as_sql_lets_it() -> None:
    assert table_of("a.b-c_D9", None) == "a_b_c_D9"
    assert table_of("orders", "mine") == "mine"
    for name in ("a.b", "a b", "a`b", "", "ä"):
        with pytest.raises(PipelineError, match="is no name for a table"):
            table_of("orders", name)


def test_the_source_reads_what_is_committed_and_fails_when_records_are_missing() -> None:
    source = plan(source_options={"kafka.security.protocol": "SSL"}).source()
    assert source["kafka.isolation.level"] == "read_committed"
    assert source["failOnDataLoss"] == "true"
    assert source["includeHeaders"] == "true"
    assert source["subscribe"] == "orders"
    assert source["kafka.security.protocol"] == "SSL"


def test_the_description_names_everything_that_was_chosen() -> None:
    shown = plan(value="json", schema="id BIGINT", interval_s=2.5, partition_by=("value.id",)).describe()
    assert shown["topic"] == "orders"
    assert shown["table"] == "orders"
    assert shown["errors_table"] == "orders__errors"
    assert shown["group"] == "kwire-pipeline-orders"
    assert shown["trigger"] == "every 2.5 s"
    assert shown["partition_by"] == ["value.id"]
    assert plan(once=True, group="g").describe()["trigger"] == "once"
    assert plan(once=True, group="g").describe()["group"] == "g"


def test_secrets_are_not_shown() -> None:
    shown = plan(source_options={"kafka.sasl.jaas.config": "password=hunter2", "kafka.ssl.key.password": "hunter2"})
    assert "hunter2" not in str(shown.describe())
    assert shown.source()["kafka.ssl.key.password"] == "hunter2"
