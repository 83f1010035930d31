"""Requests to the other brokers: connections (`peers.py`), and requests that are sent in groups (`sending.py`)."""
