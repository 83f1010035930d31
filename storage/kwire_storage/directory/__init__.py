"""A log dir: its owner, its logs, and the outcome of its last stop."""
