"""Administration as every client must find it. A client's test module names its `Client`, and inherits the scenes.

client.py    the calls that the scenes need of a client
scenes.py    topics, configs, records, groups and ACLs, described and changed
The others   the clients
"""
