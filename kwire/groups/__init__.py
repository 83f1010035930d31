"""Groups and their committed offsets: the state in `__consumer_offsets`, and the decisions of its coordinator.

The life of a join:

1. `handlers/join_group.py` passes the request to `service.py`, which makes a `Future` for the reply and awaits it. As
   in Kafka, a connection that waits for a join reads no further requests.
2. The driver, `kwire.coordinators.runtime`, finds the shard: the partition of `__consumer_offsets` to which the group
   id hashes. While that partition is being loaded, the response is COORDINATOR_LOAD_IN_PROGRESS.
3. `shard.py`, a pure state machine, takes the request and the time, and returns effects: records to append, replies to
   send. Before a request is performed, the shard expires what is due. After a failed append nothing of the partition is
   due for a growing pause (`kwire.backoff`).
4. The driver appends the records, lets the shard apply them, and sets the futures of the replies. One task sleeps until
   the earliest deadline of all shards.

A group id names one group of one kind. `group.py` is the interface of a group, which the shard and `offsets/` use. Each
kind is a folder with its groups, its records and the state machine of its APIs. The shard passes a request to the kind
of its API, and a record to the kind of its type. `migration.py` turns a group of one kind into one of another.

    classic/     JoinGroup and SyncGroup: a member assigns (KIP-62, KIP-345)
    modern/      shared by the following: epochs, targets, records, and members that expire
    consumer/    heartbeats, and the coordinator assigns (KIP-848). `heartbeats.py` takes a heartbeat through its steps:
                 the member enters, its subscription may begin a group epoch, `assigning.py` computes the target
                 assignment, and `reconciliation.py` moves the member a step towards its part
    share/       the same, but several members may have a partition, and none waits for others to give one up (KIP-932).
                 A partition first needs a state with the share coordinator (`initializing.py`)
    streams/     one Kafka Streams application (KIP-1071). Its first member sends a topology; `internal_topics.py`
                 determines topics and tasks, `assignor.py` distributes them. Missing topics are created in parallel to
                 the heartbeat (`streams_topics.py`)

Each step changes a group at once and leaves a record in a `Draft` (`draft.py`). All records of a request are one
append. If it fails, the draft undoes the changes. Offsets that are committed in a transaction are appended as part of
it; `offsets/pending.py` keeps them until the transaction's marker is appended to the partition, or replayed.
"""
