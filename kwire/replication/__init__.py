"""Replication: followers fetch from leaders, and leaders keep the set of replicas in sync.

The life of a replicated record:

1. `followers.py` follows the metadata: each replica on this node that another node leads belongs to a connection to
   that leader. The loop calls `connection.py` when its socket is ready; it has no task.
2. `fetching.py`, a pure state machine, makes the requests and takes the responses: it checks every batch, appends the
   bytes as they came, truncates the log where it diverges from the leader's (KIP-595), and waits after errors.
   `replicas/partition.py` checks the leader epoch of each append and truncation. Before a truncation the log dir's
   checkpoints are lowered durably.
3. Each fetch shows the leader what the follower has (`replicas/roles.py`), and moves the high watermark.
4. `in_sync.py` proposes changes of the ISR; `metadata/controller/partitions/isr_changes.py` decides. From the proposal
   until its outcome is known, the high watermark counts every broker that may be in the ISR (KIP-497).
"""
