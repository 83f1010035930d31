"""The data pipeline: topics become Iceberg tables, on Spark.

A job starts as a value. A plan has the source, the target, and the work between them. It is made and checked
without Spark, so that a mistake is reported without starting Java, and `--dry-run` prints it. A thin runner hands it to
Spark.

* `errors.py`: errors that a user can fix, in one line
* `topics.py`: requests a topic's id, its first and last offsets from the brokers
* `session.py`: a Spark session with the connector and Iceberg, and the Java it needs
* `warehouse.py`: where the tables are, as settings for Spark and for pyiceberg
* `tables/`: a topic as a table, exactly once
* `spark_source/`: `spark.read.format("kwire")`, a source and sink without jars
* `delivery/`: batches that many tasks write into topics, each of them once
* `index/`: a topic's records by field, and queries for them

* `mirror/`: topics of one cluster in another; `replay/`: tables as topics

The life of a batch: Spark calls `TableRun._batch` with the records, and stores their end in the query's own folder.
`decoding.py` turns them into values, and `rows.py` into rows. `writer.py` writes these to a draft, checks that the
topic is still the same, commits records that could not be decoded to the errors table, and publishes the draft. Only
`draft.py` uses Iceberg's classes: a draft is a branch that begins at the table's head as it was read. Publishing it
fast-forwards `main`, which is refused if another writer has moved `main`. The table's position is in that same snapshot
(`position.py`), and nowhere else.

Tasks of a mirror or a replay write their partitions themselves, with a `PositionedWriter` (`delivery/positioned.py`):
the records, their offset map and the position are one transaction. `delivery/committing.py` writes each batch once,
independently of Spark: tasks leave transactions open, a decision is recorded in a ledger, and after a crash the next
run completes the decision.

Jobs do not use the broker's code, and the broker does not use theirs: the jobs work with any Kafka cluster. Their
dependencies come with `pip install kwire[pipeline]`.
"""
