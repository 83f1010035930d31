"""Decisions about topics: which are created, with how many partitions, and which are deleted."""
