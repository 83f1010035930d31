"""What a node needs from outside to be one of many: an ordered log (`kwire.metadata.log`), and which nodes are alive.

Safety rests on the ordered log and nothing else. Every node folds it into its image. A record enters the log only at
the end that its writer has read up to. A node that was slower reads the new records and decides again
(`MetadataService.change`). So a decision is always made on the state that it changes, whichever node makes it, and no
node needs another one's permission.

`membership.py` is the interface: that log, and the nodes that are alive. The knowledge of life and death may be late or
wrong. It decides when something happens, never whether it is safe.

    local/       the log is a file in a folder, an append holds a lock, a node lives as long as it holds the lock on its
                 own file, and news travel by datagrams
    zookeeper/   the log is a list of nodes in ZooKeeper, a node lives as long as its session

`member.py` takes a broker through its life: registered (fenced), in service, shutting down. It compares the metadata
with the facts, and decides until both agree. The node that the membership names as the controller also fences nodes
that have ended. `metadata/controller/brokers.py` has the rules.

    registered, fenced ---> in service ---> shutting down
           ^                    |                |         its process has ended, or starts again
           +--------------------+----------------+

A coordinator acts only while it leads its partition of the internal topic, in the epoch that it loaded.
"""
