"""Records written into topics by many tasks at once, and each batch of them once, however often it is run.

Independent of Spark: whoever has batches with numbers and tasks that write parts of them can use it.

* `partitioning.py`: which partition a record goes to, as Kafka's own producer decides it
* `writing.py`: a task's records, gathered and written
* `parts.py`: a task's transaction, left open; ended, or aborted, by whoever has its name
* `ledger.py`: which batch was decided last, in a compacted topic
* `committing.py`: the decision, and what is done after a crash
"""
