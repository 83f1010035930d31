"""The shared parts of the tests. Tests import it, and the product does not.

Rooms stand on each other; `make check` keeps them in this order (devtools/type_imports.toml).

    everything_at_once   one broker with all its clocks at their fastest, and all operations and faults at once
    kills                brokers, nodes and clients that are killed under load, and ledgers of what was promised to them
    worlds               several machines, their disks and their clients in one process: simulation, power_cuts,
                         replication, exactly_once
    share                the leader and the coordinator of share groups, driven step by step
    security             certificates, logins, permissions; every check of security, broken on purpose
    spark                Spark's tables and streams, and the jobs of the pipeline
    cli                  the commands as people and scripts run them, and the page of the keys of --json
    pages                pages of the documentation, run as they are printed
    cluster              nodes of a cluster in this process, or as small processes
    groups               the coordinator of groups: its shard, members of each kind, assignors
    scenes               brokers in this process, with a disk in memory, that handlers and coordinators run in
    clients              clients that others wrote, each behind a few functions; what all of them must find
    servers              brokers in processes of their own: kwire, Apache Kafka, one or three
    raw                  requests, byte by byte: the raw client, and what is done with it to a broker
    metadata             the metadata service and its log
    storage              disks, logs, and damage to them
    fakes                brokers and services that give the answers of a test
    java                 a Java process for Kafka's clients and tools, and our programs in it
    messages             a value of each message, records, and Kafka's own judgement of both
    mutants              deliberate mistakes, put in the place of a function while a test runs
    basics               waiting, futures, proxies, a file system that is full

The tests of a room of the product are in kwire/tests; their shared parts are here.
"""
