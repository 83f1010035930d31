"""Requests, byte by byte, to any broker: no client that others wrote is between them."""
