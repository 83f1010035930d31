"""Commits the source's group offsets at the target.

A group's offsets are committed only if it has no members at the target, and only forward: the result is the larger of
the target's offset and the translated one. So a consumer that has moved to the target, and may come and go there, is
not set back. A group that was reset at the source is not set back either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.groups import (
    CommittedOffset,
    GroupHasMembers,
    commit_offsets,
    fetch_offsets,
    list_consumer_groups,
)
from kwire.client.offsets import EARLIEST, list_offsets
from kwire.pipeline.mirror.topic import MirroredPartition

_OF_JOBS: Final = "kwire-pipeline-"
"""The prefix of groups that show a job's progress at the source. They have no meaning at the target."""


def to_commit(
    committed: Mapping[TopicPartition, CommittedOffset],
    at_target: Mapping[TopicPartition, CommittedOffset],
    mirrored: Mapping[TopicPartition, MirroredPartition],
    starts: Mapping[TopicPartition, int],
) -> dict[TopicPartition, CommittedOffset]:
    """A group's translated offsets, if they are further than its offsets at the target. Pure.

    starts: the first offsets of the target's partitions, the lowest that a group can have.
    """
    found = {}
    for at, it in committed.items():
        if at not in mirrored:
            continue
        target = mirrored[at].position.target
        offset = max(mirrored[at].translate(it.offset), starts.get(target, 0))
        if target not in at_target or offset > at_target[target].offset:
            found[target] = CommittedOffset(offset, it.metadata)
    return found


def take_over(
    source: Cluster, target: Cluster, pattern: str, mirrored: Mapping[TopicPartition, MirroredPartition]
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Commits groups' offsets at the target. Returns the committed offsets by group. Raises ClientError."""
    done: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    starts: dict[TopicPartition, int] = {}
    targets = {it.position.target for it in mirrored.values()}
    for group_id in list_consumer_groups(source):
        if group_id.startswith(_OF_JOBS) or not re.fullmatch(pattern, group_id):
            continue
        committed = {at: it for at, it in fetch_offsets(source, group_id).items() if at in mirrored}
        if not committed:
            continue
        if not starts:
            starts = {
                TopicPartition(topic, partition): offset
                for topic in {it.topic for it in targets}
                for partition, offset in list_offsets(target, topic, EARLIEST).items()
            }
        wanted = to_commit(committed, fetch_offsets(target, group_id), mirrored, starts)
        try:
            commit_offsets(target, group_id, wanted)
        except GroupHasMembers:  # the group has members at the target now
            continue
        if wanted:
            done[group_id] = wanted
    return done
