"""Classic consumer groups and their offsets: what `__consumer_offsets` remembers and what its coordinator decides.

`shard.py` is the machine (one per partition of `__consumer_offsets`), `service.py` its driver, the rest are its parts.
"""
