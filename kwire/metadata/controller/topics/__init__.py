"""Decisions about topics: their creation, their partitions, and their deletion."""
