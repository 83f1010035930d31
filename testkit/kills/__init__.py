"""Brokers, nodes and clients that are killed under load, and ledgers of their promises.

Six scenarios, each of which is a command, such as `python -m testkit.kills bank --kills 20 --seed 7`:

    sigkill          a broker that is killed in every way; idempotent producers and a group
    group_kills      members of a group and of a share group, and their broker
    bank             transactional clients and their broker, or three nodes
    streams          Kafka Streams together with its broker
    cluster_faults   nodes of a cluster, and the connections between them
    jobs.py          jobs of the pipeline and their two brokers

Their common parts:

    harness.py       the loop: laps, the order of kills, the result of a run, and the context of a failure
    __main__.py      the commands: options, a progress bar, and a table in the end
    complaints.py    the violations that were found
    group_ledger.py  the records that members of a group got, and the offsets that they committed
    judging.py       a broker that has stopped or is idle, checked from outside

A new scenario has an Account (the result of a run) and a `run_lap`: it starts its clients, iterates over
`lap.kills(...)`, and checks the final state. Its ledgers add to `lap.complaints`.
"""
