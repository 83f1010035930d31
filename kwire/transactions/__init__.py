"""Transactions: what `__transaction_state` remembers of each transactional id and what its coordinator decides.

`shard.py` is the machine (one per partition of `__transaction_state`), `transaction.py` the rules of one transactional
id, the rest are their parts.
"""
