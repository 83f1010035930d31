"""Decisions about partitions: who has their replicas, who is in sync, and who leads."""
