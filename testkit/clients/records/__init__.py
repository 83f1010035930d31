"""Producing and reading, for every client. A client's test module names its `Client`, and inherits the scenes.

client.py    the calls that the scenes need of a client
scenes.py    what is sent comes back as it was; how a reader moves
The others   the clients
"""
