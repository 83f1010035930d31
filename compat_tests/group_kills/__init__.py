"""A group whose members speak both protocols, under load, while members and the broker are killed.

The group changes between the classic and the consumer protocol as its members come and go. Whatever is killed, every
acknowledged record is read by some member, none is skipped, and commits never run ahead of what was read.
"""
