"""Transactions: the state of each transactional id in `__transaction_state`, and the decisions of its coordinator.

`shard.py` is the machine (one per partition of `__transaction_state`), `transaction.py` has the rules of one
transactional id, and the other modules are parts of these.
"""
