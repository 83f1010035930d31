"""Share groups (KIP-932): records that several consumers take from one partition, each with its own acknowledgement.

Three machines work together, and each of them can be on another broker:

* The group coordinator (`kwire.groups.share`) has the members, and assigns partitions to them. It also has the list of
  the partitions that the group has begun.
* The leader of a partition (`leader/`) has the records in flight: who has them, how often they were delivered, and when
  their locks end. Members fetch from it, and acknowledge to it.
* The share coordinator (`coordinator/`) stores what the leader must not forget: the start offset, and the states of the
  records behind it, in shards of `__share_group_state`. The leader writes a change there before it answers a member,
  and a new leader begins with what it reads there.

When a group begins a partition, the group coordinator has the share coordinator initialize its state; when it deletes
one, delete it. `coordinator/persister.py` is how both reach share coordinators, here or on another broker.
"""
