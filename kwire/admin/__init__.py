"""The administration of a cluster over `kwire.client`. Texts, tables and JSON are in `kwire.cli`.

* `transactions.py`: transactional ids at their coordinators, open transactions at their leaders (KIP-664)
* `hanging.py`: which open transactions hang
* `cluster_state.py`: brokers and partitions at one moment, and what is wrong with them
* `partitions.py`: partitions and the sizes of their replicas; `reassignments.py`, `elections.py`: how these change
* `brokers.py`: brokers that do not come back
* `groups.py`: groups of all kinds and their members; `groups_offsets.py`: their offsets and lag; `groups_reset.py`:
  resets of their offsets
* `dead_letters/`: dead letters of share groups, and sending their records again (KIP-1191)
* `batches.py`: requests of a bounded size
"""
