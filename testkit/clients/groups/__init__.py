"""Groups as every client must find them. A client's test module names its `Client`, and inherits the scenes.

client.py    the calls that the scenes need of a client
scenes.py    assignments of partitions, commits, and positions after a change of members
The others   the clients
"""
