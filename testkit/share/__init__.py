"""Share groups: the leader's records in flight, and the coordinator that keeps what was acknowledged."""
