"""The common parts of consumer, share and streams groups (Kafka's package of the same name).

The coordinator of such a group assigns, and not one of its members. Members send heartbeats, and move from one epoch to
the next.

    group epoch        grows whenever a new assignment is needed: members joined, left or changed their requests, or the
                       topics changed
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member has moved to
"""
