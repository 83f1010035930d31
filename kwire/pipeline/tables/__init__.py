"""A topic as an Iceberg table, in which every reader finds each record once.

**The table decides.** Each snapshot that a job commits carries the offsets up to which it goes (`position.py`), in the
same atomic commit as the rows. A job starts where the table ends. There is no checkpoint to keep, to lose or to
confuse with another: Spark gets an empty one for each run.

**A commit is a compare-and-set.** Iceberg lets appends of different writers through, one after the other. Two jobs
that believe to be the only one would both add the same records. So a batch is written on a branch that nobody reads,
begun at the snapshot whose offsets it goes on from, and `main` is moved forward to it only if it is still there
(`draft.py`). Who comes second throws the branch away and looks again: beside a compaction it writes its batch once
more, beside another job it ends.

**Nothing stops for a bad row.** What cannot be decoded goes to a second table with its bytes and the reason
(`TOPIC__errors`), which has offsets of its own: it is committed first, and a batch that is tried again does not add
the same errors twice.
"""
