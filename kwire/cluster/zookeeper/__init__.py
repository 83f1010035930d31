"""A cluster of nodes on several machines, which share their state in Apache ZooKeeper, through the library kazoo.

    /kwire/log                 {"version":1,"start_offset":0}: where the log begins       `log_nodes.py`
    /kwire/log/00000000000000000000   the records of an append, named by the first offset
    /kwire/snapshots/00000000000000000123        lists its chunks, once all exist           `snapshot_nodes.py`
    /kwire/snapshots/00000000000000000123/TOKEN-00000   a chunk
    /brokers/ids/1             a node that is alive: ephemeral                              `cluster_nodes.py`
    /controller                the node that reacts to the start and end of others: ephemeral
    /controller_epoch          the number of controllers so far
    /cluster/id                chosen by the first node

The nodes outside of /kwire have the names and the content of Kafka 3, so that tools of that time find the brokers. All
of them are below the chroot of zookeeper.connect.

An ephemeral node ends with the session of its owner. A session outlives a lost connection for
zookeeper.session.timeout.ms. Only the servers decide that it has ended, and a client detects it when it is connected
again. So a node whose connection is lost has no certain information, and does not act until the connection is back.

Blocking functions take a `Keeper` (`keeper.py`) and run in worker threads; `session.py` is the only module that uses
kazoo. Its threads hand one call over to the event loop (`node.py`) and do nothing else.
"""
