"""Checks a whole log dir: its owner, its checkpoints, and each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from kwire_storage import names
from kwire_storage.callbacks import ignore
from kwire_storage.checkpoints import (
    MetaProperties,
    TopicPartition,
    decode_offsets,
    decode_partition_metadata,
)
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError
from kwire_storage.inspection.findings import Finding, Kind
from kwire_storage.inspection.layout import REPAIR_MARK, read_small
from kwire_storage.inspection.partition_check import (
    PartitionContext,
    PartitionSummary,
    Progress,
    TopicFacts,
    check_partition,
)

CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)
_PROMISES = {
    names.RECOVERY_POINT_CHECKPOINT: "a recovery point of",
    names.LOG_START_CHECKPOINT: "a log start of",
    names.HIGH_WATERMARK_CHECKPOINT: "a high watermark of",
    names.CLEANER_CHECKPOINT: "a cleaned part up to",
}
# Tiered storage keeps its indexes there.
_KAFKAS_OWN = {"remote-log-index-cache"}


@attrs.define
class FolderState:
    """The state of a log dir by its small files."""

    is_folder: bool
    """True if the folder has any file of a log dir."""
    in_use: bool
    clean: bool
    offsets: Mapping[str, Mapping[TopicPartition, int]]
    """The offsets by the checkpoint's name."""
    topics: Mapping[str, TopicFacts]
    findings: list[Finding] = attrs.field(factory=list)

    def context(self, folder: str, *, check_records: bool = True) -> PartitionContext:
        key = names.parse_partition_folder(folder)
        topic = self.topics.get(key[0]) if key else None
        if key is None or not self.is_folder:
            return PartitionContext(topic=topic, check_records=check_records)
        return PartitionContext(
            in_use=self.in_use,
            clean=self.clean,
            recovery_point=self.offsets[names.RECOVERY_POINT_CHECKPOINT].get(key, 0),
            log_start=self.offsets[names.LOG_START_CHECKPOINT].get(key, 0),
            topic=topic,
            check_records=check_records,
        )

    def broken_promises(self, summaries: Mapping[TopicPartition, PartitionSummary]) -> Iterator[Finding]:
        """Yields a finding for each row of the checkpoints that is beyond the end of its log."""
        for name, rows in self.offsets.items():
            for key, summary in summaries.items():
                offset, end = rows.get(key, 0), summary.end_offset
                if offset > end:
                    what = f"{key[0]}-{key[1]} has {_PROMISES[name]} {offset}, its log ends at {end}"
                    finding = Finding(Kind.CHECKPOINT_BEYOND_END, name, what, offset=offset)
                    yield finding.as_note() if self.in_use else finding


def read_state(disk: Disk, topics: Mapping[str, TopicFacts] | None = None) -> FolderState:
    """Reads the small files at the disk's root, and collects their `findings`. Raises OSError."""
    listed = set(disk.listdir(""))
    findings: list[Finding] = []
    offsets: dict[str, Mapping[TopicPartition, int]] = {}
    for name in CHECKPOINTS:
        offsets[name] = {}
        if name in listed:
            try:
                offsets[name] = decode_offsets(read_small(disk, name))
            except CorruptLogError as error:
                findings.append(Finding(Kind.CHECKPOINT_UNREADABLE, name, str(error)))
    if names.META_PROPERTIES in listed:
        try:
            MetaProperties.decode(read_small(disk, names.META_PROPERTIES))
        except CorruptLogError as error:
            findings.append(Finding(Kind.META_UNREADABLE, names.META_PROPERTIES, str(error)))
    else:
        findings.append(Finding(Kind.META_MISSING, names.META_PROPERTIES, "it is not there"))
    marks = {names.META_PROPERTIES, names.LOCK, names.CLEAN_SHUTDOWN, *CHECKPOINTS}
    return FolderState(
        is_folder=bool(listed & marks),
        in_use=disk.is_locked(names.LOCK),
        clean=names.CLEAN_SHUTDOWN in listed,
        offsets=offsets,
        topics=topics or {},
        findings=findings,
    )


def check_folder(
    disk: Disk,
    state: FolderState,
    *,
    check_records: bool = True,
    progress: Progress = ignore,
    begin: Callable[[str], None] | None = None,
    summaries: dict[TopicPartition, PartitionSummary] | None = None,
) -> Iterator[Finding]:
    """Yields all findings of a log dir and every partition in it; `begin` is called with each before its walk."""
    yield from state.findings
    partitions: dict[str, TopicPartition] = {}
    for name in sorted(disk.listdir("")):
        if not is_folder(disk, name):
            if name.endswith(names.TEMPORARY):
                yield Finding(Kind.LEFTOVER, name, "it was to replace another file")
            continue
        key = names.parse_partition_folder(name)
        if key is not None:
            partitions[name] = key
        else:
            yield from _other_folder(name)
    yield from _duplicates(disk, partitions)
    if summaries is None:
        summaries = {}
    for name, key in partitions.items():
        if begin is not None:
            begin(name)
        summary = summaries[key] = PartitionSummary()
        try:
            context = state.context(name, check_records=check_records)
            yield from check_partition(disk, name, context, summary, progress)
        except FileNotFoundError:
            del summaries[key]
            yield Finding(Kind.VANISHED, name, "it went away during the check")
        except OSError as error:
            del summaries[key]
            yield Finding(Kind.UNREADABLE, name, error.strerror or str(error))
    known = set(partitions.values())
    for name, rows in state.offsets.items():
        for key, offset in rows.items():
            if key not in known:
                what = f"it has a row of {key[0]}-{key[1]}"
                yield Finding(Kind.CHECKPOINT_STALE_ROW, name, what, offset=offset)
    yield from state.broken_promises(summaries)


def is_folder(disk: Disk, name: str) -> bool:
    try:
        disk.listdir(name)
    except NotADirectoryError:
        return False
    except OSError:
        # It cannot be listed, or was removed: its own check will report that.
        return True
    return True


def _other_folder(name: str) -> Iterator[Finding]:
    if names.is_deleted_folder(name):
        yield Finding(Kind.DOOMED_FOLDER, name, "the deletion of a partition has begun")
    elif names.is_stray_folder(name):
        yield Finding(Kind.STRAY_FOLDER, name, "a partition that was set aside")
    elif name.endswith("-future") and "." in name:
        yield Finding(Kind.FUTURE_FOLDER, name, "a partition that is being moved here")
    elif name not in _KAFKAS_OWN and not name.startswith((".", "lost+found")) and REPAIR_MARK not in name:
        yield Finding(Kind.UNKNOWN_FOLDER, name, "no partition's name")


def _duplicates(disk: Disk, partitions: Mapping[str, TopicPartition]) -> Iterator[Finding]:
    seen: dict[TopicPartition, str] = {}
    ids: dict[str, tuple[bytes, str]] = {}
    for name, key in partitions.items():
        if key in seen:
            yield Finding(Kind.DUPLICATE_PARTITION, name, f"it is the same partition as {seen[key]}")
        seen.setdefault(key, name)
        try:
            topic_id = decode_partition_metadata(read_small(disk, f"{name}/{names.PARTITION_METADATA}"))
        except (CorruptLogError, OSError):
            continue
        first = ids.setdefault(key[0], (topic_id, name))
        if first[0] != topic_id:
            what = f"it has topic id {topic_id.hex()}, {first[1]} has {first[0].hex()}"
            yield Finding(Kind.TOPIC_ID, f"{name}/{names.PARTITION_METADATA}", what)
