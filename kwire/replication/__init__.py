"""Replication: followers fetch from leaders, and leaders keep the set of replicas in sync."""
