"""Share groups (KIP-932) at the leader of a partition: the records in flight, their members and their states.

`share_partition.py` is the machine for one group and one partition. `in_flight.py` stores its records, and
`acquiring.py` chooses the records of a fetch. `sessions.py` has the sessions of ShareFetch and ShareAcknowledge. These
are pure: time is an argument, and reading, writing and waking are effects that the caller carries out.

`service.py` is that caller. It has the share partitions that this broker leads (`led.py`), and reads the log for them
(`reading.py`).
"""
