"""Producers, transactions and groups of one broker, driven in any order, beside a plain model of them."""
