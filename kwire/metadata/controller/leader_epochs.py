"""Leader epochs that are not behind the logs.

A log that was carried here from another cluster (storage/README.md says how) may have been written in later leader
epochs than this cluster's metadata knows of. Records must not go on in an earlier epoch: clients that have seen the
later one would take the partition's leader for outdated, and wait for a newer one for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire_protocol.internal.metadata_topics import PartitionRecord
from kwire_protocol.wire import Uuid

from kwire.metadata.controller.deciding import Records
from kwire.metadata.image import MetadataImage


def epochs_behind(image: MetadataImage, latest: Mapping[tuple[Uuid, int], int]) -> Records:
    """Begins the epoch that follows the latest of the log, for each of these partitions, by topic id and index."""
    records: Records = []
    for (topic_id, index), epoch in latest.items():
        known = image.topics_by_id[topic_id].partitions[index]
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=list(known.replicas),
                isr=list(known.isr),
                removing_replicas=list(known.removing_replicas),
                adding_replicas=list(known.adding_replicas),
                leader=known.leader,
                leader_epoch=epoch + 1,
                partition_epoch=known.partition_epoch + 1,
                directories=list(known.directories),
                leader_recovery_state=known.leader_recovery_state,
            )
        )
    return records
