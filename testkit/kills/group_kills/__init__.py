"""A group whose members speak both protocols, and a share group, under load, while members and the broker are killed.

The group changes between the classic and the consumer protocol as its members come and go. Whatever is killed, every
acknowledged record is read by some member, none is skipped, and commits never run ahead of what was read. In the share
group each record is accepted, or lies in the dead-letter topic, and never both or twice (share_ledger.py).
"""
