"""The data pipeline: topics become Iceberg tables, on Spark.

A job is a value first. A plan says what is read, from where to where, and what becomes of it; it is made and checked
without Spark, so that a mistake costs no Java process, and `--dry-run` prints it. A thin runner hands it to Spark.

* `errors.py`: what a user can mend, told in one line
* `topics.py`: what the brokers say about a topic: its id, its first and last offsets
* `session.py`: a Spark session with the connector and Iceberg, and the Java that it needs
* `warehouse.py`: where the tables are, in Spark's words and in pyiceberg's
* `tables/`: a topic as a table, exactly once
* `spark_source/`: `spark.read.format("kwire")`, a source and sink without jars
* `delivery/`: batches that many tasks write into topics, each of them once
* `index/`: a topic's records by field, and queries for them

Nothing of the broker is used, nor needs this: the jobs work with any Kafka cluster. What they need beyond kwire itself
comes with `pip install kwire[pipeline]`.
"""
