"""README.md's block for Spark; compat_tests/test_readme.py has the others."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from kwire.testing import Broker
from testkit.pages.readme_blocks import PRINTED_ADDRESS, block_with
from testkit.spark.records import numbered, produce


def test_the_block_of_spark_reads_the_topic(spark: SparkSession, tmp_path: Path) -> None:
    with Broker() as broker:
        produce(broker.address, "orders", numbered(10))
        names: dict[str, object] = {"spark": spark}
        exec(block_with("spark.readStream").text.replace(PRINTED_ADDRESS, broker.address), names)
        orders = names["orders"]
        assert isinstance(orders, DataFrame)
        stream = orders.writeStream.format("memory").queryName("orders_of_the_readme").trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
        assert spark.table("orders_of_the_readme").count() == 10
