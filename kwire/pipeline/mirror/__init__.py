"""Topics kept in another cluster as they are: partitions, configurations, records, and the offsets of groups.

`plan.py` is what a mirror will do, `run.py` does it on Spark. A task copies partitions as `writing.py` says. What the
mirror has to remember is in a compacted topic of the target, in the values of `state.py`: how far each partition has
come, and the map of offsets, whose runs `offsets.py` reckons with. `topics.py` keeps the target's topics like the
source's, `groups.py` takes over what groups have committed, and `origins.py` finds records that would come back.
"""
