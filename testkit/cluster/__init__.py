"""Nodes of one cluster: in this process without sockets, in threads, and as small processes."""
