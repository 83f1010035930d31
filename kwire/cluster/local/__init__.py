"""The processes of one machine as a cluster: files, locks and datagrams in one folder, which all of them see.

    __cluster_metadata-0/   the metadata log and its snapshots, in Kafka's format   `metadata_log.py`
    cluster.lock            held for each operation on that log
    nodes/1.lock, 1.life    held by node 1 as long as it lives                      `lives.py`
    nodes/1.sock            notifies node 1 of new records                          `news.py`

All decisions rest on the kernel: it grants a lock to one process at a time, and releases it when that process
ends, however it ends. So the folder must not be on a network file system, whose locks are not the kernel's.
"""
