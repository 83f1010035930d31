"""Share groups (KIP-932) at the leader of a partition: who holds which record, and what is done.

`share_partition.py` is the machine for one group and one partition. `in_flight.py` is how it stores its records, and
`acquiring.py` chooses what a fetch gets. `sessions.py` are the sessions of ShareFetch and ShareAcknowledge. These are
pure: time is an argument, and reading, writing and waking are effects that the caller carries out.

`service.py` is that caller. It has the share partitions that this broker leads (`led.py`), and what they read of the
log (`reading.py`).
"""
