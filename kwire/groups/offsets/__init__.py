"""Committed offsets: the checks of a commit, the stored offsets, and those pending in transactions."""
