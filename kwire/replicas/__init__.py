"""The partitions of this node: appending to them, reading from them, and how far their replicas agree."""
