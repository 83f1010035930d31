"""The share coordinator (KIP-932): stores the state of share partitions in `__share_group_state`.

The life of a share partition's state:

1. The leader of the partition writes what was acknowledged, released or archived through `persister.py` before it
   answers a member. The persister finds the share coordinator: here, or on another node, which gets one request for
   many share partitions (`remote_states.py`).
2. `service.py` passes the request to a shard (`shard.py`). Two epochs fence obsolete requests: those of a leader that
   was replaced, and those of a leader that has not seen that the group's offsets were reset.
3. The shard appends the change (ShareUpdate), and after some of these the whole state (ShareSnapshot; `records.py`).
   `batches.py` combines batches: for each offset the latest delivery counts.
4. The topic is not compacted. The records before the last snapshot of every share partition are deleted, and the state
   of an idle one is recorded again, so that it does not hold up the deletion.
"""
