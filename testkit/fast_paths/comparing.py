"""The state of a broker in values that can be compared."""

from __future__ import annotations

from typing import Any

import trio
from kwire_storage.disk.memory_disk import Folder, MemoryDisk

from kwire.coordinators.deadlines import Deadline
from kwire.groups.consumer.group import ConsumerGroup
from kwire.metrics import reading
from kwire.node.broker import Broker
from kwire.replicas.fetch_sessions import CachedPartition
from kwire.replicas.partition import Partition
from testkit.scenes.partition_files import log_files


def state_of(broker: Broker) -> dict[str, Any]:
    """Returns everything about partitions and groups that requests may have changed."""
    found: dict[str, Any] = {f"{it.topic}-{it.index}": _partition(it) for it in broker.partitions}
    for index, shard in broker.groups.runtime.in_service():
        for group_id, group in shard.groups.items():
            found[f"group {group_id}"] = (index, _group(group) if isinstance(group, ConsumerGroup) else type(group))
    for session_id, session in broker.fetch_sessions._sessions.items():
        found[f"session {session_id}"] = (
            (session.epoch, session.last_used_ms, session.parked is not None, str(session.reader)),
            [_followed(it) for it in session.partitions.values()],
            [(it.topic, it.index) for it in session.due],
        )
    found["sessions"] = [*broker.fetch_sessions._sessions]
    return found


def metrics_of(broker: Broker) -> list[str]:
    return [str(family) for family in trio.run(reading.read, broker)]


def files_of(disk: MemoryDisk) -> dict[str, bytes]:
    """Returns the content of every file, by path."""
    found: dict[str, bytes] = {}

    def visit(folder: Folder, path: str) -> None:
        for name, node in folder.entries.items():
            if isinstance(node, Folder):
                visit(node, f"{path}/{name}")
            else:
                found[f"{path}/{name}"] = bytes(node.data)

    visit(disk._root, "")
    return found


def _followed(it: CachedPartition) -> tuple[Any, ...]:
    return (
        (it.topic, it.index, it.fetch_offset, it.max_bytes, it.current_leader_epoch),
        (it.last_fetched_epoch, it.log_start_offset, it.sent_high_watermark, it.sent_log_start_offset, it.rests),
    )


def _partition(partition: Partition) -> tuple[Any, ...]:
    log = partition.log
    segment = log_files(partition).active
    return (
        str(partition.role),
        (log.log_start_offset, partition.last_stable_offset, partition.high_watermark, log.log_end_offset),
        log.recovery_point,
        partition.flush_gate.held_from,
        partition.flush_gate.trigger_messages,
        len(partition.waiters),
        [(last_offset, acks) for last_offset, acks, future in partition._acknowledgements.waiting if not future.is_set],
        [str(entry) for entry in log.producers.entries.values()],
        str(log.producers._refused),
        log.leader_epochs.entries,
        (segment.base_offset, segment.size, segment.max_timestamp, segment.offset_of_max_timestamp),
        (segment.bytes_since_index, segment.index_room, segment.fits_until_ms, segment.rolling_timestamp),
    )


def _group(group: ConsumerGroup) -> tuple[Any, ...]:
    timers = {member_id: [_deadline(it) for it in timers] for member_id, timers in group.timers.items()}
    return (
        (group.epoch, group.assignment_epoch, group.assignment_timestamp_ms, group.metadata_hash, group.topics_version),
        {member_id: str(member) for member_id, member in group.members.items()},
        {member_id: str(current) for member_id, current in group.current.items()},
        {member_id: str(target) for member_id, target in group.targets.items()},
        timers,
        (group.regexes_version, group.regexes_refreshed_at_ms),
    )


def _deadline(timer: Deadline) -> tuple[int | None, int | None]:
    return timer.deadline_ms, timer.queued_at_ms
