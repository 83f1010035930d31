"""Decisions about partitions: their replicas, in-sync replicas and leaders."""
