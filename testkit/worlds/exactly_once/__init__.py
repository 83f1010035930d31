"""Producers, transactions and groups of one broker, driven in any order, and compared with a plain model of them."""
