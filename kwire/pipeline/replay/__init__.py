"""Writes a table, or a range of a topic, back into a topic: each record once, and each key's records in order.

A replay is a job with a name. Its first run pins its source: a snapshot of the table, or offsets of the topic.
A compacted topic in the target's cluster stores that decision, so a later run of the same name takes the same records
and continues where the last one ended.

* `plan.py`: the user's request, checked without Spark
* `pinned.py`: the first run's decision, which later runs follow
* `keeper.py`: the driver's part at the brokers
* `source.py`: the rows, of a table or a topic; `order.py`: their distribution to tasks, and their order
* `writing.py`: the work of a task; `pace.py`: the rate limit; neither depends on Spark
* `sink.py`: how Spark hands rows to a task
* `progress.py`: the progress of the tasks
* `run.py`: all of it, as a run of a job

A restart neither loses nor duplicates a record, because one task at a time writes a target partition, in transactions
that contain the position (`delivery/positioned.py`). The position is an offset for each source partition. That is
enough because a target partition takes the records of a source partition in the order of their offsets, so the records
written are always the first ones.
"""
