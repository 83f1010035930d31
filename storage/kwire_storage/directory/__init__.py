"""A log dir: whose it is, which logs are in it, and how its last stop went."""
