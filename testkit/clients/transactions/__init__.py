"""Transactions that must work with every client; a client's test module defines its `Client` and inherits the scenes.

client.py    the client's interface in the scenes
queries.py   requests to the broker without a client: last stable offsets, offsets of groups
scenes.py    transactions on a broker that stays up
restarts.py  transactions over a restart of the broker, at each step
"""
