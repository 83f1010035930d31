"""Brokers, nodes and clients that are killed under load, and ledgers of what was promised to them."""
