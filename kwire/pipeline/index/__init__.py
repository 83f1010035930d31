"""Finds a topic's records by field: an index that Spark writes, and queries that do not need Spark.

The index is an Iceberg table, `TOPIC__index`, and a table job writes it: exactly once, its offsets in its snapshots,
what cannot be decoded in `TOPIC__index__errors`. Only its layout is another:

    kafka    as in every table: partition, offset, timestamp, timestamp_type, key, headers
    FIELD    one column for each indexed field of the value
    value    the record's value, the bytes as they came

**The value is stored.** The index could store only offsets, and a query would fetch the records from the brokers. But
an answer of a thousand records would need a thousand fetches, each of a whole batch, and records that retention has
deleted could not be found at all. Compressed together with similar values, a value is far smaller than in the topic.

**It is sorted.** By all fields, first those that repeat most in a sample of the topic, so the records of one user are
adjacent. Single values of a field that hardly repeats are found by the Bloom filters of row groups of a few megabytes.
The files are in buckets of one field, so that a query reads only one of the files of a small commit.

**It may lag.** A query reads what is not indexed yet straight from the brokers, so the job can commit rarely.

* `fields.py`: the indexed fields, and how they are read out of JSON
* `plan.py`, `layout.py`: the plan of the job, and the table that it writes
* `where.py`: parses a query's condition, and evaluates it for a single record
* `found.py`: a found record; `lookup.py`: finds in the index; `tail.py`: at the brokers; `query.py`: in both together
"""
