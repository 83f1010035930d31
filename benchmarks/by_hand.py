"""The Spark job that one writes without kwire, to compare `kwire pipeline table` with: `python -m benchmarks.by_hand`.

Structured Streaming from Spark's Kafka connector to an Iceberg table, as the guides of both have it. Its position
is in its checkpoint. What cannot be decoded becomes a row of nulls; headers are left out. Session, catalog and table
properties are those of kwire's job.
"""

from __future__ import annotations

from collections.abc import Mapping

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody has it
from pyspark.sql.types import StructType

from kwire.cli.pipeline.session import spark_for
from kwire.pipeline.warehouse import NAMESPACE, parse_warehouse


@click.command()
@click.argument("topic")
@click.option("--bootstrap-server", "bootstrap", required=True)
@click.option("--to", "warehouse", required=True, help="A folder; the table has the topic's name.")
@click.option("--schema", required=True, help="DDL.")
@click.option("--checkpoint", required=True)
@click.option("--max-offsets-per-trigger", type=int, required=True)
@click.option("--master", required=True)
@click.option("--conf", multiple=True, metavar="NAME=VALUE")
def main(
    topic: str,
    bootstrap: str,
    warehouse: str,
    schema: str,
    checkpoint: str,
    max_offsets_per_trigger: int,
    master: str,
    conf: tuple[str, ...],
) -> None:
    """Take what is in TOPIC, then end."""
    place = parse_warehouse(warehouse, {})
    place.make()
    settings = dict(item.split("=", 1) for item in conf)
    source = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(max_offsets_per_trigger),
    }
    # It ends the session's Java process and waits for it: only so is its CPU time counted to this command.
    with spark_for("by hand", place, settings, master) as spark:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{place.catalog}`.`{NAMESPACE}`")
        _copy(spark, source, schema, place.spark_name(topic), checkpoint)


def _copy(spark: SparkSession, source: Mapping[str, str], schema: str, table: str, checkpoint: str) -> None:
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} (`partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP, key BINARY, "
        f"value {StructType.fromDDL(schema).simpleString()}) USING iceberg "
        "TBLPROPERTIES ('format-version' = '2', 'write.parquet.compression-codec' = 'zstd')"
    )
    records = spark.readStream.format("kafka").options(**source).load()
    value = F.from_json(F.col("value").cast("string"), schema).alias("value")
    rows = records.select("partition", "offset", "timestamp", "key", value)
    writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
    writer.toTable(table).awaitTermination()


if __name__ == "__main__":
    main()
