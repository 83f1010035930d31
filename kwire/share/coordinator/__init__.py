"""What share groups have delivered and acknowledged, kept for the leaders of their partitions (KIP-932).

Each (group, topic id, partition) is a share-partition. Its leader keeps the records in flight (elsewhere), and writes
their states to the share coordinator, which is this room: shards of `__share_group_state`.
"""
