"""Every file name of the log dir, in one place.

    data/
      .lock .kafka_cleanshutdown .kwire.reserve meta.properties
      recovery-point-offset-checkpoint log-start-offset-checkpoint replication-offset-checkpoint
      cleaner-offset-checkpoint
      orders-0/                       one folder for each partition: topic, "-", partition
        partition.metadata leader-epoch-checkpoint
        00000000000000000000.log      records; the name is the base offset, twenty digits
        00000000000000000000.index    .timeindex .txnindex beside it
        00000000000000004711.snapshot producer state up to, and without, that offset
        00000000000000004711-0000000001.checkpoint
                                      in the metadata log: a snapshot of the metadata up to, and without, that offset,
                                      whose last record was written in that epoch
        *.deleted *.cleaned *.swap      on their way out, or in (compaction/swap.py)
        *.<number>.tmp                  new content of the file of that name, until it is complete (data/ has some, too)
      orders-0.<32 hex digits>-delete/  a deleted partition until its files are gone
      orders-0.<32 hex digits>-future/  a partition that is on its way here from another folder
      orders-0.<32 hex digits>-stray/   a partition whose topic the metadata has never had; retained

No name from a client becomes part of a path unless it passed `partition_folder`, which refuses separators, the two dot
names, control characters and names too long for a file system.
"""

from __future__ import annotations

from itertools import count

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
METADATA_SNAPSHOT = ".checkpoint"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RESERVE = ".kwire.reserve"
CLEANER_LOCK = ".kwire.cleaner.lock"
META_PROPERTIES = "meta.properties"
CLUSTER_METADATA = "__cluster_metadata"
"""The topic of the metadata log, which is in one log dir only; the other log dirs ignore the name."""
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

_temporary_numbers = count(1)
_DELETE_FOLDER_SUFFIX = "-delete"
_STRAY_FOLDER_SUFFIX = "-stray"
_FUTURE_FOLDER_SUFFIX = "-future"
_UNIQUE_DIGITS = 32
_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10
_MAX_FILE_NAME_BYTES = 255
# A deleted folder is called `name.<32 hex digits>-delete`; a long topic name is cut to make room, as Kafka does.
_DELETE_TAIL_CHARS = 1 + 32 + len(_DELETE_FOLDER_SUFFIX)


def temporary(path: str) -> str:
    """The name under which new content of the file is written, before it replaces the file.

    No two are the same in one process, and one process at a time has a log dir, so no two writers share one. The next
    opening of the folder removes those that a crash leaves.
    """
    return f"{path}.{next(_temporary_numbers)}{TEMPORARY}"


def offset_name(offset: int, suffix: str) -> str:
    """The name of a segment's file or a snapshot: `offset_name(4711, ".log") == "00000000000000004711.log"`."""
    return f"{offset:020d}{suffix}"


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """The offset and suffix of a segment's file or a snapshot; None for any other name."""
    digits, suffix = name[:_OFFSET_DIGITS], name[_OFFSET_DIGITS:]
    if len(digits) == _OFFSET_DIGITS and digits.isdecimal() and digits.isascii() and suffix.startswith("."):
        return int(digits), suffix
    return None


def metadata_snapshot(end_offset: int, epoch: int) -> str:
    """The name of a snapshot, such as 00000000000000004711-0000000001.checkpoint (Kafka's `Snapshots`)."""
    return f"{end_offset:0{_OFFSET_DIGITS}d}-{epoch:0{_EPOCH_DIGITS}d}{METADATA_SNAPSHOT}"


def parse_metadata_snapshot(name: str) -> tuple[int, int] | None:
    """The end offset and the epoch; None for any other name."""
    offset, dash, epoch = name.removesuffix(METADATA_SNAPSHOT).partition("-")
    is_one = name.endswith(METADATA_SNAPSHOT) and dash and (offset + epoch).isdecimal() and name.isascii()
    return (int(offset), int(epoch)) if is_one and name == metadata_snapshot(int(offset), int(epoch)) else None


def partition_folder(topic: str, partition: int) -> str:
    """The name `topic-partition`. Raises ValueError for a topic name that must not become a path."""
    if not topic or topic in (".", "..") or any(char in "/\\" or not char.isprintable() for char in topic):
        raise ValueError(f"not a name for a folder: {topic!r}")
    if partition < 0:
        raise ValueError(f"negative partition: {partition}")
    folder = f"{topic}-{partition}"
    if len(folder.encode()) > _MAX_FILE_NAME_BYTES:
        raise ValueError(f"too long for a folder name: {topic!r}")
    return folder


def parse_partition_folder(name: str) -> tuple[str, int] | None:
    """The topic and partition of a folder; None if it is not a partition's."""
    topic, dash, partition = name.rpartition("-")
    if not (topic and dash and partition.isdecimal() and partition.isascii()) or is_deleted_folder(name):
        return None
    return topic, int(partition)


def deleted_folder(folder: str, unique: bytes) -> str:
    """The name of a partition's folder, set aside or not, before its files are removed; `unique` is 16 bytes."""
    if is_stray_folder(folder):
        folder = folder.rpartition(".")[0]
    return f"{folder[: _MAX_FILE_NAME_BYTES - _DELETE_TAIL_CHARS]}.{unique.hex()}{_DELETE_FOLDER_SUFFIX}"


def stray_folder(folder: str, unique: bytes) -> str:
    """The name under which a partition's folder is kept if its topic is unknown; `unique` is 16 bytes."""
    return f"{folder[: _MAX_FILE_NAME_BYTES - _DELETE_TAIL_CHARS]}.{unique.hex()}{_STRAY_FOLDER_SUFFIX}"


def future_folder(folder: str, unique: bytes) -> str:
    """The folder of a partition's copy, until it replaces the original in another log dir (KIP-113).

    `unique` is 16 bytes. Raises ValueError for a topic with a name that is too long for it, as in Kafka.
    """
    name = f"{folder}.{unique.hex()}{_FUTURE_FOLDER_SUFFIX}"
    if len(name.encode()) > _MAX_FILE_NAME_BYTES:
        raise ValueError(f"too long for a folder name: {name!r}")
    return name


def parse_future_folder(name: str) -> tuple[str, int] | None:
    """The topic and partition of a copy that moves to another log dir; None for any other folder."""
    folder, dot, unique = name.removesuffix(_FUTURE_FOLDER_SUFFIX).rpartition(".")
    if not (name.endswith(_FUTURE_FOLDER_SUFFIX) and dot and len(unique) == _UNIQUE_DIGITS):
        return None
    return parse_partition_folder(folder)


def is_deleted_folder(name: str) -> bool:
    """Returns True if the folder is being deleted."""
    return name.endswith(_DELETE_FOLDER_SUFFIX) and "." in name


def is_stray_folder(name: str) -> bool:
    """Returns True if the folder was set aside because its topic was unknown."""
    return name.endswith(_STRAY_FOLDER_SUFFIX) and "." in name
