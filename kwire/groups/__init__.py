"""Groups and their offsets: what `__consumer_offsets` remembers and what its coordinator decides.

`shard.py` is the machine (one per partition of `__consumer_offsets`), `service.py` its driver. `group.py` is what a
kind of group has to be; each kind has a folder. `offsets/` knows groups of no kind in particular.
"""
