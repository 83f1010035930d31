"""Log compaction: what it keeps, what it plans, and writing that."""
