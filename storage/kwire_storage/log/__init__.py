"""One partition's log: segments in order, the last of which is appended to."""
