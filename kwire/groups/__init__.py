"""Groups and their offsets: the state in `__consumer_offsets`, and the decisions of its coordinator.

`shard.py` is the machine (one per partition of `__consumer_offsets`), `service.py` its driver. `group.py` has the
interface of all kinds of groups; each kind has its own folder. `offsets/` does not depend on any kind.
"""
