"""A Spark session for a command: started after all checks that do not need it, stopped with the command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from kwire.pipeline.session import settings, start_session, stop_session
from kwire.pipeline.warehouse import Warehouse


@contextmanager
def spark_for(
    command: str, warehouse: Warehouse | None, conf: Mapping[str, str], master: str | None
) -> Iterator[SparkSession]:
    """A session configured for the warehouse, if there is one. Raises PipelineError."""
    given = {**({} if warehouse is None else warehouse.spark_settings), **conf}
    spark = start_session(settings(given, master=master, name=f"kwire pipeline {command}"))
    try:
        yield spark
    finally:
        stop_session(spark)
