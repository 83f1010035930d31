"""A log dir: its owner, its logs, and how its last stop went."""
