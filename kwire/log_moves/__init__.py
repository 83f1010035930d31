"""Partitions on their way from one log folder to another (AlterReplicaLogDirs, KIP-113)."""
