"""Frames that break the rules of the protocol, and the driver that sends them."""
