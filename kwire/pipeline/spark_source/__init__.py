"""`spark.read.format("kwire")`: topics as rows, and rows into topics, in pure Python, where jars cannot be had.

    from kwire.pipeline.spark_source import register

    register(spark)
    spark.readStream.format("kwire").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders")

Rows, types and options are those of Spark's Kafka connector; what is not supported is refused by its name. It needs
`pip install kwire[pipeline]` on every machine of the cluster, and no `spark.jars`.

Reading
* `source.py`: what Spark registers, and the columns
* `options.py`: the options; `positions.py`: offsets and partitions as JSON
* `asking.py`: what the driver asks the brokers
* `ranges.py`, `limits.py`, `losses.py`: what tasks read, how much a batch holds, what is gone; pure
* `batch_reader.py`, `stream_reader.py`: a batch, a stream
* `reading.py`: what a task does; `arrow_rows.py`: record batches as Arrow columns

Writing
* `sink_options.py`, `sink_rows.py`: the options, and rows as records
* `batch_writer.py`, `stream_writer.py`: a batch, and a stream's batches, each of them once
* `task.py`: what a task knows of itself

Both
* `light_tasks.py`: what keeps a task from costing 0.1 s beside what it does
"""

from __future__ import annotations

from kwire.pipeline.spark_source.source import KwireDataSource, register

__all__ = ["KwireDataSource", "register"]
