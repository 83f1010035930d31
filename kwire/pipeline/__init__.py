"""The data pipeline: topics become Iceberg tables, on Spark.

A job starts as a value. A plan says what is read, from where to where, and what is done with it. It is made and checked
without Spark, so that a mistake is reported without starting Java, and `--dry-run` prints it. A thin runner hands it to
Spark.

* `errors.py`: errors that a user can fix, in one line
* `topics.py`: asks the brokers for a topic's id, its first and last offsets
* `session.py`: a Spark session with the connector and Iceberg, and the Java it needs
* `warehouse.py`: where the tables are, as settings for Spark and for pyiceberg
* `tables/`: a topic as a table, exactly once
* `spark_source/`: `spark.read.format("kwire")`, a source and sink without jars
* `delivery/`: batches that many tasks write into topics, each of them once
* `index/`: a topic's records by field, and queries for them

Jobs do not use the broker's code, and the broker does not use theirs: the jobs work with any Kafka cluster. Their
dependencies come with `pip install kwire[pipeline]`.
"""
