"""A group whose members use both protocols, and a share group, under load, while members and the broker are killed.

The group changes between the classic and the consumer protocol as its members come and go. After any kill, every
acknowledged record is read by some member, none is skipped, and commits are never ahead of the read records. In the
share group each record is accepted, or is in the dead-letter topic, and never both or twice (share_ledger.py).
"""
