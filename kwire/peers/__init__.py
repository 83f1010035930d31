"""Requests to the other brokers.

`connecting.py` connects, for replicas too. `peers.py` keeps connections, and `sending.py` sends requests in groups.
"""
