"""Transactions: the state of each transactional id in `__transaction_state`, and the decisions of its coordinator.

The life of a transaction:

1. InitProducerId goes to `service.py`, which has the same driver as groups (`kwire.coordinators.runtime`): a shard for
   each partition of `__transaction_state` (`shard.py`). `transaction.py` has the state of one transactional id and the
   effect of each request on it, with a diagram of the states. Producer ids come in blocks (`metadata/producer_ids.py`).
2. The first batch for a partition goes to `replicas/enlisting.py`. The partition has no transaction of this producer,
   so the coordinator adds the partition (Produce v12, transaction version 2), or confirms that it was added (before
   that: AddPartitionsToTxn). All further batches find the open transaction in `kwire_storage/producers/states.py`, and
   are plain appends.
3. The last stable offset stays at the first record of the first open transaction; `replicas/reading.py` limits
   read_committed to the offsets below it.
4. TxnOffsetCommit adds the group's partition of `__consumer_offsets` in the same way.
5. EndTxn appends the Prepare record: the transaction is decided. `completion.py` requests a marker in each partition
   until all are confirmed, and then appends the Complete record. The decision is committed before the first marker is
   written, and each marker before the transaction is complete; a batch of the next transaction waits for that
   (`waiting.py`).
6. `replicas/partition.py` appends the marker, a control batch. The producers' state notes an aborted transaction for
   `.txnindex`, the last stable offset moves, and parked fetches wake. In a partition of `__consumer_offsets` the
   groups' shard applies or drops its pending offsets.
7. With several brokers the coordinator, the leaders and the group's coordinator may be different nodes. Step 2 then is
   an AddPartitionsToTxn to the coordinator, and step 5 a WriteTxnMarkers to each leader. One request to each node is in
   flight, and further ones wait to share the next (`remote_partitions.py`, `remote_markers.py`, `peers/sending.py`). If
   a marker arrives while the request to the coordinator is in flight, the partition is sent again.
8. After a kill the shard is replayed. A transaction with a Prepare record but no Complete record gets its markers
   again; an open one lasts until its deadline. Writing an existing marker again does no harm.

A transaction that is open in a partition and unknown to its coordinator is hanging. If each first batch is verified,
only a power cut that lost records of `__transaction_state` can leave one. `kwire txn list --hanging` finds it, and
WriteTxnMarkers ends it.
"""
