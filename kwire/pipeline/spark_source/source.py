"""The data source that Spark registers under the name kwire, and the columns of its rows.

Spark creates the class from its options in every process that needs it: to get the columns, to plan, to run a stream.
So kwire has to be installed on every machine of a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.light_tasks import spare_reading_archives
from kwire.pipeline.spark_source.options import parse_source_options
from kwire.pipeline.spark_source.sink_options import SinkOptions, parse_sink_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]


def columns(*, include_headers: bool) -> StructType:
    """The columns, as in Spark's Kafka connector."""
    headers = [StructField("headers", ArrayType(_HEADER))] if include_headers else []
    return StructType([*_COLUMNS, *headers])


class KwireDataSource(DataSource):
    """Topics of a Kafka cluster, without a jar. The options are in `options.py` and `sink_options.py`."""

    @classmethod
    def name(cls) -> str:
        return "kwire"

    def schema(self) -> StructType:
        include_headers = str(self.options.get("includeheaders", "false")).strip().lower() == "true"
        return columns(include_headers=include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from kwire.pipeline.spark_source.batch_reader import BatchReader

        spare_reading_archives()
        options = parse_source_options(self.options, streaming=False)
        self._check(schema, include_headers=options.include_headers)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from kwire.pipeline.spark_source.stream_reader import StreamReader

        spare_reading_archives()
        options = parse_source_options(self.options, streaming=True)
        self._check(schema, include_headers=options.include_headers)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kwire.pipeline.spark_source.batch_writer import BatchWriter

        return BatchWriter(self._sink_options(schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from kwire.pipeline.spark_source.stream_writer import StreamWriter

        return StreamWriter(self._sink_options(schema, overwrite, streaming=True))

    def _sink_options(self, schema: StructType, overwrite: bool, *, streaming: bool) -> SinkOptions:
        from kwire.pipeline.spark_source.sink_rows import check_columns

        if overwrite:
            raise PipelineError(
                "a topic cannot be overwritten: use .mode('append'), or of a stream the output modes append and update"
            )
        options = parse_sink_options(self.options, streaming=streaming)
        check_columns(schema, options.topic)
        spare_reading_archives()
        return options

    def _check(self, schema: StructType, *, include_headers: bool) -> None:
        if schema.fieldNames() != columns(include_headers=include_headers).fieldNames():
            raise PipelineError(
                "the columns of the format kwire are given: leave out .schema(...), and cast in the query"
            )


def register(spark: SparkSession) -> None:
    """Registers the format kwire in the session."""
    spark.dataSource.register(KwireDataSource)
