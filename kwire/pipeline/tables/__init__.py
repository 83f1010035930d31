"""A topic as an Iceberg table, in which every reader finds each record once.

**The table decides.** Each snapshot that a job commits has the offsets up to which it goes (`position.py`), in the same
atomic commit as the rows. A job starts where the table ends. There is no checkpoint to keep, to lose or to confuse with
another: Spark gets an empty one for each run.

**A commit is a compare-and-set.** Iceberg accepts appends of different writers, one after the other. Two jobs that each
assume to be the only one would both add the same records. So a batch is written on a branch that has no readers, which
begins at the snapshot with the batch's starting offsets. `main` is moved forward to the branch only if it is still at
that snapshot (`draft.py`). The writer that comes second drops its branch and checks the table again: after a compaction
it writes its batch again, after another job's commit it ends.

**A bad row stops nothing.** A record that cannot be decoded goes to a second table with its bytes and the reason
(`TOPIC__errors`). That table has its own offsets: it is committed first, and a batch that is retried does not add the
same errors twice.
"""
