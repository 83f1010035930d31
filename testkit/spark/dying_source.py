"""The format kwire, with processes that end in the midst of a batch: at the step that a file names, once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kwire.pipeline.spark_source import KwireDataSource
from kwire.pipeline.spark_source.sink_options import SinkOptions
from kwire.pipeline.spark_source.stream_writer import StreamWriter

ORDER = "dies.at"
"""The option with the file's path. Its text is a step of `Committer`, or `write`."""


class DyingWriter(StreamWriter):
    def __init__(self, options: SinkOptions, order: Path) -> None:
        super().__init__(options)
        self.order = order

    def step(self, name: str) -> None:
        if _is_ordered(self.order, name):
            os._exit(1)  # as a kill: nothing is cleaned up or reported

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(_failing(iterator, self.order))


class DyingSource(KwireDataSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        order = Path(self.options.pop(ORDER))
        return DyingWriter(self._sink_options(schema, overwrite, streaming=True), order)


def _failing(batches: Iterator[pa.RecordBatch], order: Path) -> Iterator[pa.RecordBatch]:
    yield from batches
    if _is_ordered(order, "write"):
        os._exit(1)


def _is_ordered(order: Path, name: str) -> bool:
    is_so = order.exists() and order.read_text() == name
    if is_so:
        order.unlink()
    return is_so
