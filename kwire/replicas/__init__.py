"""The partitions of this node: appends, reads, roles, and the acknowledgements of their replicas."""
