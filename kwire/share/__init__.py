"""Share groups (KIP-932): records that several consumers take from one partition, each with its own acknowledgement.

Three machines work together, and each of them can be on another broker:

* The group coordinator (`kwire.groups.share`) has the members, and assigns partitions to them. It also has the list of
  the partitions that the group has begun.
* The leader of a partition (`leader/`) has the records in flight: their members, their delivery counts, and the
  deadlines of their locks. Members fetch from it, and acknowledge to it.
* The share coordinator (`coordinator/`) stores the leader's durable state: the start offset, and the states of the
  records behind it, in shards of `__share_group_state`. The leader writes a change there before it answers a member,
  and a new leader begins with the state that it reads there.

The group coordinator requests the share coordinator to initialize the state of a partition that a group begins, and to
delete the state of one that it deletes. Both the group coordinator and the leader use `coordinator/persister.py` to
reach share coordinators, here or on another broker.
"""
