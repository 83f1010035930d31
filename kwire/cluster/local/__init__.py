"""The processes of one machine as a cluster: files, locks and datagrams in one folder that they share.

    __cluster_metadata-0/   the metadata log and its snapshots, in Kafka's format   `metadata_log.py`
    cluster.lock            locked for each operation on that log
    nodes/1.lock, 1.life    locked by node 1 as long as it lives                      `lives.py`
    nodes/1.sock            notifies node 1 of new records                          `news.py`

All decisions depend on the kernel: it grants a lock to one process at a time, and releases it when that process ends in
any way. So the folder must not be on a network file system, whose locks are not the kernel's.
"""
