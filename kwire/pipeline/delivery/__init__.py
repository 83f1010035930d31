"""Records written into topics by many tasks at once, each of them once, however often the tasks are run.

Independent of Spark. There are two ways, by who knows where to go on:

* the caller has batches with numbers, and keeps the last number himself, as a Spark query does in its checkpoint:
  `committing.py`, with `parts.py` (a task's transaction, left open until all are written) and `ledger.py` (which batch
  was decided last)
* the writer itself keeps how far it has come: `positioned.py`

Both use `kept.py`, a compacted topic. `partitioning.py` tells which partition a record goes to, as Kafka's own producer
decides it. `writing.py` gathers a task's records and writes them.
"""
