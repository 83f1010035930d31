"""Share groups (KIP-932): their coordinator. Members get partitions, which several of them may share.

`kwire.sharing` delivers the records of the partitions, and `kwire.share_state` keeps what became of them.
"""
