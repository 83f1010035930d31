"""Groups as every client must find them. A client's test module names its `Client`, and inherits the scenes.

client.py    the calls that the scenes need of a client
scenes.py    who gets which partitions, who may commit, and where reading goes on
The others   the clients
"""
