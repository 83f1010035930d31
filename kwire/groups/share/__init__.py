"""Share groups (KIP-932): their coordinator. Members get partitions, which several of them may share.

`kwire.share.leader` delivers the records of the partitions, and `kwire.share.coordinator` stores their delivery states.
"""
