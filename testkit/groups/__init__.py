"""The coordinator of groups: its shard, members of each kind with their random lives, and assignors."""
