"""DescribeLogDirs: v1-5 (KIP-113).

* v2: flexible
* v3: a top-level error code
* v4: total_bytes and usable_bytes of the folder's file system (KIP-827)
* v5: is_cordoned (KIP-1066); no folder is, cordoned.log.dirs has no effect

The response also has folders without any of the requested partitions. An offline folder has an error instead of
partitions. A partition that is being moved has a second entry, for its copy, in the target folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kwire_storage.names import CLUSTER_METADATA

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire_storage.directory.log_dir import LogDir
    from kwire_storage.directory.log_dirs import LogDirs

    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.logs.moves import LogMoves
    from kwire.replicas.table import PartitionTable


def handle(
    authorization: Authorization,
    partitions: PartitionTable,
    moves: LogMoves,
    log_dirs: LogDirs,
    request: DescribeLogDirsRequest,
    context: Context,
) -> DescribeLogDirsResponse:
    if not authorization.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = [_describe(partitions, moves, folder, wanted) for folder in log_dirs.dirs]
    results += [DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path) for path in log_dirs.offline]
    return DescribeLogDirsResponse(results=results)


def _describe(
    partitions: PartitionTable, moves: LogMoves, folder: LogDir, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    try:
        if folder.failed is None:
            space = folder.disk.space()
            found = sorted(_partitions(partitions, moves, folder, wanted))
            result = DescribeLogDirsResult(0, folder.path, _by_topic(found))
            if space is not None:
                result.total_bytes, result.usable_bytes = space
            return result
    except OSError as error:
        folder.on_failed(folder, error)
    return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, folder.path)


Row = tuple[str, int, int, int, bool]
"""Topic, partition, size (bytes), lag (offsets), and True if it is the copy of a move in progress."""


def _partitions(
    partitions: PartitionTable, moves: LogMoves, folder: LogDir, wanted: set[tuple[str, int]] | None
) -> Iterable[Row]:
    for key, log in folder.logs.items():
        if key[0] != CLUSTER_METADATA and (wanted is None or key in wanted):
            partition = partitions.find(*key)
            yield *key, log.size_in_bytes, max(partition.high_watermark - log.log_end_offset, 0), False
    for move in moves.moves:
        if move.target_folder is folder and (wanted is None or move.key in wanted):
            yield *move.key, move.copied_bytes, move.lag, True


def _by_topic(rows: Iterable[Row]) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for name, index, size, lag, is_copy in rows:
        topic = topics.setdefault(name, DescribeLogDirsTopic(name))
        topic.partitions.append(DescribeLogDirsPartition(index, size, lag, is_copy))
    return list(topics.values())
