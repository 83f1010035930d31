"""A broker that is killed again and again under load, and checks of its data afterwards.

    ledger.py    the acknowledgements, and the log that must follow from them
    load.py      the clients: idempotent producers, and the members of a group
    killing.py   the ways to kill it, and the checks after each start
    scenario.py  a lap: so many kills, then everything is read back, and Kafka's tool reads every file

A SIGKILL ends the process and not the system, whose page cache has everything that was written: with Kafka's default
flush policy nothing acknowledged may be lost. Power cuts are simulated by testkit/worlds/power_cuts.
"""
