"""Brokers, nodes and clients that are killed under load, and ledgers of what was promised to them.

Six scenarios, each of which is a command, such as `python -m testkit.kills bank --kills 20 --seed 7`:

    sigkill          a broker, by every way to be killed; idempotent producers and a group
    group_kills      members of a group and of a share group, and their broker
    bank             transactional clients and their broker, or three nodes
    streams          Kafka Streams together with its broker
    cluster_faults   nodes of a cluster, and the connections between them
    jobs.py          jobs of the pipeline and their two brokers

What they have in common:

    harness.py       the loop: laps, the order of kills, what a run has come to, what a failure says of its place
    __main__.py      the commands: options, a progress bar, and a table in the end
    complaints.py    what is found to be wrong
    group_ledger.py  what members of a group were given, and what they committed
    judging.py       a broker that has stopped or rests, seen from outside

A new scenario has an Account (what a run has come to) and a `run_lap`: it starts its clients, goes through
`lap.kills(...)`, and judges what is left. Its ledgers add to `lap.complaints`.
"""
