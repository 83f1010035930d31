"""Finds a topic's records by field: an index that Spark writes, and queries that do not need Spark.

The index is an Iceberg table, `TOPIC__index`, and a table job writes it: exactly once, its offsets in its snapshots,
what cannot be decoded in `TOPIC__index__errors`. Only its layout is another:

    kafka    as in every table: partition, offset, timestamp, timestamp_type, key, headers
    FIELD    one column for each indexed field of the value
    value    the record's value, the bytes as they came

**The value is stored.** The index could name offsets only, and the brokers would be asked for the records. But an
answer of a thousand records would be a thousand fetches, each of a whole batch; and what retention has taken from the
topic could not be answered at all. Compressed beside its like, a value is far smaller than in the topic.

**It is sorted.** By all fields, those first that repeat most in a sample of the topic: records of one user lie side by
side, and a field that hardly repeats is for needles, which the Bloom filters of row groups of a few megabytes find. The
files are in buckets of one field, so that a commit of few records is looked into at one place.

**It may lag.** A query reads what is not indexed yet straight from the brokers, so the job can commit rarely.

* `fields.py`: the indexed fields, and how they are read out of JSON
* `plan.py`, `layout.py`: what the job will do, and the table that it writes
* `where.py`: the condition of a query, parsed, and told for a single record
* `found.py`: what is found; `lookup.py`: by the index; `tail.py`: by the brokers; `query.py`: by both together
"""
