"""Nodes as processes, under the load of clients, to which bad things happen one after the other.

    forms.py     what the nodes share: a folder, or a ZooKeeper of their own
    nodes.py     the processes, and the proxies on all ways to them
    kinds.py     what can happen to them
    load.py      confluent-kafka and Kafka's Java client (Clients.java): idempotent and transactional producers, a group
    ledgers.py   what clients were told, and what the cluster must have by that
    scenario.py  a lap: faults under load, and the judgement in the end

    python -m testkit.kills cluster --faults 100 --form zookeeper --seed 7

Each fault begins and ends with a cluster that is whole, and with clients that go on. Afterwards every acknowledged
record is there, once and in order, the replicas of a partition are the same bytes, and Kafka's DumpLogSegments and
`kwire log check` find nothing in any log dir.
"""
