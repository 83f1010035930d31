"""Maintains the logs on disk: compaction, retention, moves between log dirs, free space."""
