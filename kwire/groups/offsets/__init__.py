"""Committed offsets: who may commit, what is stored, what waits for a transaction to end."""
