"""Nodes as processes, under the load of clients, with one fault after the other.

    forms.py     the shared storage of the nodes: a folder, or a ZooKeeper of their own
    nodes.py     the processes, and the proxies on all connections to them
    kinds.py     the faults
    load.py      confluent-kafka and Kafka's Java client (Clients.java): idempotent and transactional producers, a group
    ledgers.py   the answers to clients, and the records that the cluster must have because of them
    scenario.py  a lap: faults under load, and the checks in the end

    python -m testkit.kills cluster --faults 100 --form zookeeper --seed 7

Each fault begins and ends with a cluster that is whole, and with clients that make progress. Afterwards every
acknowledged record is there, once and in order, the replicas of a partition are the same bytes, and Kafka's
DumpLogSegments and `kwire log check` find nothing in any log dir.
"""
