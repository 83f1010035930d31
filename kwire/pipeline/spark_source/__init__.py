"""`spark.read.format("kwire")`: topics as rows, and rows into topics, in pure Python, where jars cannot be had.

    from kwire.pipeline.spark_source import register

    register(spark)
    spark.readStream.format("kwire").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders")

Rows, types and options are those of Spark's Kafka connector; an option that is not supported is refused by name. This
needs `pip install kwire[pipeline]` on every machine of the cluster, and no `spark.jars`.

Reading
* `source.py`: the data source that Spark registers, and the columns
* `options.py`: the options; `positions.py`: offsets and partitions as JSON
* `offset_reader.py`: the driver's requests to brokers
* `ranges.py`, `limits.py`, `losses.py`: the ranges of tasks, the size of a batch, lost offsets; pure
* `batch_reader.py`, `stream_reader.py`: a batch, a stream
* `reading.py`: the work of a task; `arrow_rows.py`: record batches as Arrow columns

Writing
* `sink_options.py`, `sink_rows.py`: the options, and rows as records
* `batch_writer.py`, `stream_writer.py`: a batch, and a stream's batches, each of them once
* `task.py`: a task's identity

Both
* `light_tasks.py`: saves each task 0.1 s of overhead
"""

from __future__ import annotations

from kwire.pipeline.spark_source.source import KwireDataSource, register

__all__ = ["KwireDataSource", "register"]
