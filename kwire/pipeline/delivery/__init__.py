"""Writes records into topics from many tasks at once, each record once, however often the tasks are run.

Independent of Spark. There are two ways, depending on where the position is stored:

* the caller numbers its batches and stores the last number itself, as a Spark query does in its checkpoint:
  `committing.py`, with `parts.py` (a task's transaction, left open until all are written) and `ledger.py` (the last
  decided batch)
* the writer stores its own position: `positioned.py`

Both use `compacted_topic.py`. `partitioning.py` chooses a record's partition as Kafka's own producer does.
`writing.py` collects a task's records and writes them.
"""
