"""Transactions as every client must find them; a client's test module gives its `Client` and inherits the scenes.

client.py    what the scenes ask of a client
queries.py    what the broker says by itself: last stable offsets, offsets of groups
scenes.py    transactions on a broker that stays up
restarts.py  transactions over a restart of the broker, at each step
"""
