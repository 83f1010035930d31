"""The membership of a node in a cluster: an ordered log (`kwire.metadata.log`), and the liveness of the nodes.

Safety depends only on the ordered log. Every node folds it into its image. A record enters the log only at
the end that its writer has read up to. A node that was slower reads the new records and decides again
(`MetadataService.change`). So a decision is always made on the state that it changes, on any node, and no node needs
another one's permission.

`membership.py` is the interface: that log, and the nodes that are alive. The information about liveness may be late or
wrong. It affects the time of a decision, never its safety.

    local/       the log is a file in a folder, an append holds a lock, a node lives as long as it holds the lock on its
                 own file, and datagrams notify the others
    zookeeper/   the log is a list of nodes in ZooKeeper, a node lives as long as its session

`member.py` has the states of a broker: registered (fenced), in service, shutting down. It compares the metadata
with the facts, and decides until both agree. The node that the membership names as the controller also fences nodes
that have ended. `metadata/controller/brokers.py` has the rules.

    registered, fenced ---> in service ---> shutting down
           ^                    |                |         its process has ended, or starts again
           +--------------------+----------------+

A coordinator acts only while it leads its partition of the internal topic, in the epoch that it loaded.
"""
