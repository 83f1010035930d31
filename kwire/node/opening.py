"""The start of a broker: opens its log dirs, the metadata log and the logs, and registers it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from kwire_protocol.wire import uuid_to_text
from kwire_storage import names
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.directory.log_dirs import LogDirs, has_owner
from kwire_storage.directory.openings import OpeningProgress
from kwire_storage.disk.files import Disk
from kwire_storage.errors import ForeignFolderError, StorageError, is_full
from kwire_storage.log.log import Log

from kwire.cluster.member import ClusterMember
from kwire.cluster.membership import Membership
from kwire.config.server import ServerConfig
from kwire.logs.moves import LogMoves
from kwire.metadata.bootstrap import register_alone
from kwire.metadata.controller.deciding import Decision
from kwire.metadata.controller.partitions.leader_epochs import next_epochs
from kwire.metadata.image import Changes
from kwire.metadata.log import (
    METADATA_LOG_CONFIG,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    FileMetadataLog,
    MetadataLog,
)
from kwire.metadata.service import MetadataService
from kwire.replicas.table import PartitionTable
from kwire.runtime.clock import Clock
from kwire.runtime.futures import at_once
from kwire.runtime.loop import Loop

log = logging.getLogger(__name__)

RunAll = Callable[[list[Callable[[], None]], Callable[[], str], int], None]
"""Takes tasks, a function that describes the progress, and the maximum number of tasks to run concurrently."""


def in_turn(tasks: list[Callable[[], None]], progress: Callable[[], str], threads: int) -> None:  # noqa: ARG001
    for task in tasks:
        task()


def open_metadata(
    config: ServerConfig,
    disks: Mapping[str, Disk],
    clock: Clock,
    membership: Membership | None,
    loop: Loop,
    on_error: ExitStack,
) -> tuple[MetadataService, LogDirs]:
    """Opens the folder of the metadata, the metadata, and then the other log dirs; not yet the logs in them.

    `on_error` gets the functions that release what was opened. Raises FolderLockedError, StorageError, CorruptLogError.
    """
    path = config.metadata_log_dir
    if membership is None:
        _check_metadata_folder(config, disks)
    folder = LogDir.open(
        disks[path],
        cluster_id=membership.cluster_id if membership is not None else config.cluster_id or uuid_to_text(clock.uuid()),
        node_id=config.node_id,
        directory_id=clock.uuid(),
        path=path,
        draw=clock.draw,
        reserve_bytes=config.kwire_log_reserve_bytes,
    )
    on_error.callback(folder.abandon)
    metadata = MetadataService.open(
        config,
        cluster_id=folder.meta.cluster_id,
        log=_metadata_log(config, folder, clock, membership, loop),
        clock=clock,
        check_room=folder.reserve.check_new,
        loop=loop,
    )
    log_dirs = LogDirs.open(
        {path: disks[path] for path in config.log_dirs},
        folder,
        known_ids=metadata.registered_log_dirs,
        new_id=clock.uuid,
        topic_id_of=metadata.topic_id,
        draw=clock.draw,
        reserve_bytes=config.kwire_log_reserve_bytes,
    )
    on_error.callback(log_dirs.abandon)
    metadata.is_alone = membership is None
    metadata.choose_directories = log_dirs.choose
    return metadata, log_dirs


def _metadata_log(
    config: ServerConfig, folder: LogDir, clock: Clock, membership: Membership | None, loop: Loop
) -> MetadataLog:
    if membership is not None:
        _check_cluster(folder, membership)
        return membership.log
    _check_no_cluster(folder)
    return FileMetadataLog(_embedded_log(folder, clock.now_ms()), config.node_id, clock.now_ms, loop)


def _check_metadata_folder(config: ServerConfig, disks: Mapping[str, Disk]) -> None:
    """Raises StorageError if log.dirs was reordered: the broker would otherwise start empty, without its data."""
    path = config.metadata_log_dir
    if disks[path].exists(names.partition_folder(METADATA_TOPIC, 0)):
        return
    others = [other for other in config.log_dirs if other != path and has_owner(disks[other])]
    has_log = [other for other in others if disks[other].exists(names.partition_folder(METADATA_TOPIC, 0))]
    if others:
        where = f"{has_log[0]} has it: name that one" if has_log else "name the folder that has it"
        raise StorageError(
            errno.ENOENT,
            f"the metadata log is not here, although {others[0]} is a folder of this broker's; {where} first in "
            "log.dirs, or in metadata.log.dir",
            path,
        )


def _embedded_log(folder: LogDir, now_ms: int) -> Log:
    if (METADATA_TOPIC, 0) in folder.found:
        return folder.open_log(METADATA_TOPIC, 0, METADATA_LOG_CONFIG, now_ms=now_ms)
    return folder.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG_CONFIG, now_ms=now_ms)


def _check_no_cluster(folder: LogDir) -> None:
    """Raises StorageError for a folder of a cluster's node: its topics would all be unknown."""
    if folder.found and (METADATA_TOPIC, 0) not in folder.found:
        raise ForeignFolderError(
            errno.EPERM,
            f"the folder has {len(folder.found)} partitions and no metadata log: it belongs to node "
            f"{folder.meta.node_id} of cluster {folder.meta.cluster_id}; start it with the kwire.cluster.dir, or the "
            "zookeeper.connect, of that cluster",
            folder.path,
        )


def _check_cluster(folder: LogDir, membership: Membership) -> None:
    """Raises StorageError for a folder that belongs to no node, or to a node of another cluster."""
    if folder.meta.cluster_id != membership.cluster_id:
        raise ForeignFolderError(
            errno.EPERM,
            f"the folder belongs to cluster {folder.meta.cluster_id}, and this cluster is {membership.cluster_id}: "
            "choose the folder of this node, or an empty one",
            folder.path,
        )
    if (METADATA_TOPIC, 0) in folder.found:
        raise ForeignFolderError(
            errno.EPERM,
            "the folder has a metadata log of its own: it belongs to a broker that is not part of a cluster; start it "
            "without kwire.cluster.dir and zookeeper.connect, or choose an empty folder",
            folder.path,
        )


def register(metadata: MetadataService, log_dirs: LogDirs, member: ClusterMember | None) -> None:
    """Registers the broker with its log dirs, and begins the next leader epochs of a single node."""
    ids = [folder.meta.directory_id for folder in log_dirs.dirs]
    if log_dirs.offline:
        # A registered folder that was not found may be one of the offline ones, so keep its id.
        ids += [known for known in metadata.registered_log_dirs if known not in ids]
    for path, error in log_dirs.offline.items():
        log.error("the log dir %s cannot be opened and is out of service: %s", path, error)
    if member is None:
        at_once(metadata.decide(Decision(register_alone, (ids,))))
        _begin_next_epochs(metadata)
    else:
        member.register(ids, stopped_epoch=log_dirs.stopped_epoch)


def _begin_next_epochs(metadata: MetadataService) -> None:
    """Begins the next leader epochs. On a full disk the last ones continue. Raises other OSErrors."""
    try:
        at_once(metadata.decide(Decision(next_epochs)))
    except OSError as error:
        if not is_full(error):
            raise
        log.warning("the leader epochs stay as they were, because the metadata log cannot be written: %s", error)


def open_logs(
    metadata: MetadataService, log_dirs: LogDirs, partitions: PartitionTable, moves: LogMoves, run_all: RunAll
) -> None:
    """Opens the logs of all partitions, and checks them after an unclean stop. Raises StorageError.

    A log dir that fails goes out of service, unless it has the metadata log or is the last one.
    """
    for folder in log_dirs:
        folder.on_failed = partitions.take_offline
        folder.on_log_failed = partitions.take_log_offline
    moves.finish_interrupted()
    topics = list(metadata.image.topics.values())
    openings = partitions.openings(topics)
    run_all(
        [opening.run for opening in openings],
        lambda: f"checking the logs after an unclean stop: {OpeningProgress.of(openings)}",
        metadata.config.num_recovery_threads_per_data_dir * len(metadata.config.log_dirs),
    )
    partitions.opened(openings)
    at_once(partitions.apply(Changes(topics_created=topics)))
    partitions.settle_strays(lambda: at_once(metadata.deleted_topic_ids()))
    partitions.report_unreachable()
    if log_dirs.metadata.failed is not None:
        raise StorageError.of(log_dirs.metadata.failed, log_dirs.metadata.path)
    if not log_dirs.online:
        raise StorageError(errno.EIO, "no log dir is usable", ", ".join(metadata.config.log_dirs))
