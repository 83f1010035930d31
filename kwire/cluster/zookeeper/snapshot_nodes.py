"""Snapshots of the metadata as nodes of ZooKeeper: the bytes of Kafka's snapshot file, in chunks.

`/kwire/snapshots/00000000000000000123` replaces the log before offset 123. First its chunks are written. Then one
multi-operation announces it, by setting the node's data, and moves the start of the log. So half a snapshot is never
read, and the log always begins at a complete snapshot or before it.

All nodes write snapshots, sometimes the same one at once. A chunk has the token of its writer in its name, and the data
of the node can be set for the first time only once: one writer wins, the others remove their chunks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final

import attrs
from kwire_storage.errors import CorruptLogError

from kwire.cluster.zookeeper.keeper import (
    BadVersionError,
    ConnectionLostError,
    Keeper,
    NoNodeError,
    SetData,
    ZooKeeperError,
    create_if_missing,
    patiently,
)
from kwire.cluster.zookeeper.log_nodes import (
    LOG,
    ROOT,
    Begin,
    delete_all,
    name_of,
    parse_name,
    read_begin,
    remove_before,
)
from kwire.metadata.log_batches import EPOCH
from kwire.metadata.snapshots import Snapshot, read_snapshot_file, snapshot_batches

log = logging.getLogger(__name__)

SNAPSHOTS: Final = f"{ROOT}/snapshots"
CHUNK_BYTES: Final = 512 * 1024
MOST_CHUNKS: Final = 2048
"""The maximum number of chunks: a snapshot of 1 GiB."""
READ_ATTEMPTS: Final = 20
"""Each attempt but the first is needed because others have written a newer snapshot in between."""


@attrs.frozen
class Announcement:
    """The data of a snapshot's node: the token of the writer, the number of chunks, and their total size."""

    token: str
    chunks: int
    size_in_bytes: int

    def encode(self) -> bytes:
        content = {"version": 1, "token": self.token, "chunks": self.chunks, "bytes": self.size_in_bytes}
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Announcement:
        """Raises ValueError."""
        try:
            content = json.loads(data)
            token, chunks, size = content["token"], content["chunks"], content["bytes"]
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError("it is not in a form that kwire writes") from error
        if not (isinstance(token, str) and token.isalnum() and isinstance(chunks, int) and isinstance(size, int)):
            raise ValueError("it is not in a form that kwire writes")
        if not 0 < chunks <= MOST_CHUNKS or content.get("version") != 1:
            raise ValueError(f"it has {chunks} chunks, in version {content.get('version')}")
        return cls(token, chunks, size)

    def paths(self, end_offset: int) -> list[str]:
        return [f"{snapshot_node(end_offset)}/{self.token}-{number:05}" for number in range(self.chunks)]


def snapshot_node(end_offset: int) -> str:
    return f"{SNAPSHOTS}/{name_of(end_offset)}"


def write_snapshot(keeper: Keeper, values: Sequence[bytes], end_offset: int, token: bytes, now_ms: int) -> None:
    """Writes a snapshot, unless there is one that reaches as far. Raises ZooKeeperError; then the log is unchanged."""
    if any(it >= end_offset for it in patiently(keeper, lambda: _announced(keeper))):
        return
    content = b"".join(snapshot_batches(values, epoch=EPOCH, now_ms=now_ms))
    chunks = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
    if len(chunks) > MOST_CHUNKS:
        raise ZooKeeperError(f"a snapshot of the metadata has {len(content)} bytes, more than kwire keeps in ZooKeeper")
    announcement = Announcement(token.hex(), len(chunks), len(content))
    paths = announcement.paths(end_offset)
    try:
        create_if_missing(keeper, snapshot_node(end_offset))
        for path, chunk in zip(paths, chunks, strict=True):
            create_if_missing(keeper, path, chunk)
        is_announced = _announce(keeper, announcement, end_offset)
    except NoNodeError:  # Another node has written a newer one, and removes this one.
        is_announced = False
    if not is_announced:
        delete_all(keeper, paths)
        return
    try:
        _remove_older(keeper, end_offset, announcement)
    except ZooKeeperError as error:
        log.warning("what the snapshot at %d replaces is removed with the next one: %s", end_offset, error)


def _announce(keeper: Keeper, announcement: Announcement, end_offset: int) -> bool:
    """Returns False if another node was first. Raises NoNodeError."""
    node, data = snapshot_node(end_offset), announcement.encode()
    for _ in keeper.attempts():
        try:
            found = keeper.get(node)
            if found.stat.version > 0:
                return found.data == data
            begin = read_begin(keeper)
            if begin.offset >= end_offset:
                return False
            moved = attrs.evolve(begin, offset=end_offset)
            keeper.commit(SetData(node, data, 0), SetData(LOG, moved.encode(), begin.version))
            return True
        except (BadVersionError, ConnectionLostError):
            continue
    raise AssertionError("attempts end with an error")


def _remove_older(keeper: Keeper, end_offset: int, announcement: Announcement) -> None:
    remove_before(keeper, Begin(end_offset, -1))
    for name in patiently(keeper, lambda: keeper.children(SNAPSHOTS)):
        older = parse_name(name)
        if older is None or older > end_offset:
            continue
        node = snapshot_node(older)
        retained = set(announcement.paths(end_offset)) if older == end_offset else set()
        delete_all(keeper, [it for it in _children(keeper, node) if it not in retained])
        if older < end_offset:
            delete_all(keeper, [node])


def _children(keeper: Keeper, node: str) -> list[str]:
    try:
        return [f"{node}/{name}" for name in patiently(keeper, lambda: keeper.children(node))]
    except NoNodeError:
        return []


def _announced(keeper: Keeper) -> list[int]:
    """End offsets of complete snapshots, the newest first."""
    found = []
    for offset in sorted((it for it in map(parse_name, keeper.children(SNAPSHOTS)) if it is not None), reverse=True):
        stat = keeper.exists(snapshot_node(offset))
        if stat is not None and stat.version > 0:
            found.append(offset)
    return found


def read_snapshot(keeper: Keeper) -> Snapshot | None:
    """Returns the newest readable snapshot. Raises CorruptLogError if the log begins after it, and ZooKeeperError."""
    for _ in range(READ_ATTEMPTS):
        # The start of the log first: it is at a snapshot, and that one or a newer one is found afterwards.
        begin = patiently(keeper, lambda: read_begin(keeper))
        try:
            for end_offset in patiently(keeper, lambda: _announced(keeper)):
                if end_offset < begin.offset:
                    break
                try:
                    return Snapshot(end_offset, read_snapshot_file(_content(keeper, end_offset)))
                except CorruptLogError as error:
                    log.error("%s in ZooKeeper cannot be used: %s", snapshot_node(end_offset), error)
        except NoNodeError:
            continue  # It was removed after a newer one was written.
        if begin.offset == 0:
            return None
        if patiently(keeper, lambda: read_begin(keeper)) == begin:
            raise CorruptLogError(f"the metadata log in ZooKeeper begins at {begin.offset}, and no snapshot reaches it")
    raise ZooKeeperError("other nodes write snapshots faster than this one can read them")


def _content(keeper: Keeper, end_offset: int) -> bytes:
    """Raises NoNodeError, CorruptLogError."""
    data = patiently(keeper, lambda: keeper.get(snapshot_node(end_offset))).data
    try:
        announcement = Announcement.decode(data)
    except ValueError as error:
        raise CorruptLogError(f"its announcement: {error}") from error
    content = b"".join(_chunk(keeper, path) for path in announcement.paths(end_offset))
    if len(content) != announcement.size_in_bytes:
        raise CorruptLogError(f"it has {len(content)} bytes instead of {announcement.size_in_bytes}")
    return content


def _chunk(keeper: Keeper, path: str) -> bytes:
    return patiently(keeper, lambda: keeper.get(path)).data
