"""A broker that is killed again and again under load, and what must be true of its data afterwards.

    ledger.py    what clients were told, and what the log must look like by that
    load.py      the clients: idempotent producers, and the members of a group
    killing.py   the ways to be killed, and the questions asked after each start
    scenario.py  a lap: so many kills, then everything is read back, and Kafka's tool reads every file

A SIGKILL ends the process and not the system, whose page cache has all that was written: by Kafka's default flush
policy nothing acknowledged may be lost. What a power cut leaves is the matter of testkit/worlds/power_cuts.
"""
