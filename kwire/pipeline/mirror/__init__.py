"""Mirrors topics to another cluster: partitions, configurations, records, and the offsets of groups.

`plan.py` is the plan of a mirror, and `run.py` runs it on Spark. `driver.py` plans the batches, and has a `topic.py`
for each topic. Tasks copy partitions with `writing.py`. `upkeep.py` works in a second thread, parallel to the batches;
`handover.py` is all that the two threads share.

A compacted topic of the target has the mirror's state, in the values of `state.py`: each partition's position, and the
offset map, whose runs `offsets.py` computes. `topics.py` keeps the target's topics equal to the source's, `groups.py`
translates the offsets of groups, and `origins.py` detects loops of mirrors.
"""
