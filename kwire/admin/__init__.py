"""What the commands ask a cluster, over `kwire.client`, and what they find. Words, tables and JSON are in `kwire.cli`.

* `transactions.py`: transactional ids at their coordinators, open transactions at their leaders (KIP-664)
* `hanging.py`: which open transactions hang
"""
